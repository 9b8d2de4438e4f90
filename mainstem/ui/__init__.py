"""A page in the browser that shows tables: ``mainstem ui PATH...``.

It only reads, and shows what the public methods of ``Table`` tell: what is missing there is added there. The
server is Python's own, the page plain JavaScript without a build; both come with the package.

    admission      who may ask: names of hosts, origins, the token
    page_server    the server: bounds of requests, headers, files of the page
    answers        from a request to what it is answered
    found_tables   which tables there are below the given places
    shown_table    one table: opened anew for each look, what is remembered between looks
    shown_instants the timeline, by pages of what changed
    shown_files    partitions, file groups and file slices, by pages
    shown_options  properties, and what is unusual about them
    shown_streams  what streams noted in their commits
    row_query      SQL by DuckDB, bounded
    query_process  the process in which that runs, and is ended
    page/          HTML, CSS and JavaScript
"""

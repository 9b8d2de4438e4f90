"""The driver of a stream on a Spark cluster whose hosts share nothing but a store; its argument is JSON.

It goes on from its checkpoint in the store, and runs the services as tasks beside it, until its input ends.
Says as a JSON object per line what was done.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from demos.places import Place
from demos.speaking import say
from demos.stream_writer import start_spark
from mainstem import spark as ms
from mainstem.errors import Invalid


def main() -> None:
    given = json.loads(sys.argv[1])
    place, ended = Place(given["base"]), threading.Event()
    spark = start_spark("stream", place, given["master"], host=given["host"])
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", given["rows"])
    rows = source.option("numPartitions", 2).load().selectExpr("value as id", "value * 10 as v")
    url, checkpoint = place.for_spark("t"), place.for_spark("checkpoint")
    query = ms.write_stream(rows, url, options=given["options"], checkpoint=checkpoint, trigger="1 second")
    while query.isActive and not ended.wait(1):
        try:
            runs = ms.run_services(spark, url, properties=given["services"])
        except Invalid:  # no table yet
            continue
        for run in runs:
            if run.error is not None:
                raise run.error
            say(service=run.service, results=len(run.results))
    query.stop()
    if query.exception() is not None:
        raise query.exception()
    say(done=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

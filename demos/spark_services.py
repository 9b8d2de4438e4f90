"""The services of the main job's tables as a Spark job: its tasks compact, its driver does the rest.

    python -m demos.spark_services PLACE MASTER

Goes on until the process that started it is gone, and ends with an error if a service fails. Says after each
round with results {"served": table, "services": [...]}.
"""

from __future__ import annotations

import sys
import time

from demos.places import Place
from demos.speaking import end_with_parent, say
from demos.stream_writer import STATUS, WIDE, start_spark, table_options

PAUSE_S = 1.0


def main(place: Place, master: str) -> None:
    from mainstem import spark as ms

    end_with_parent()
    spark = start_spark("services", place, master, executors=1)
    while True:
        for table in (WIDE, STATUS):
            runs = ms.run_services(spark, place.path(table), properties=table_options("services", 0))
            for run in runs:
                if run.error is not None:
                    raise run.error
            if done := [run.service for run in runs if run.results]:
                say(served=table, services=done)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(Place(sys.argv[1]), sys.argv[2])

"""Prints, in hexadecimal, the event file that the test `bytes_are_those_of_tensorboard` expects.

Made with tensorboard 2.21 (pip install tensorboard setuptools).
"""

import io

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

buffer = io.BytesIO()
writer = RecordWriter(buffer)
summary = summary_pb2.Summary()
summary.value.add(tag="reward/mean", simple_value=0.625)
summary.value.add(tag="policy/kl", simple_value=-2.5)
for event in [
    event_pb2.Event(wall_time=1700000000.5, file_version="brain.Event:2"),
    event_pb2.Event(
        wall_time=1700000000.5,
        step=301,
        session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START),
    ),
    event_pb2.Event(wall_time=1700000001.25, step=302, summary=summary),
]:
    writer.write(event.SerializeToString())
writer.flush()
print(buffer.getvalue().hex())

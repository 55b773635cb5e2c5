"""What the operator and the engine package say to each other, in one place.

Three things cross between them: the schedule file (operator → engine), the exported series (engine →
Prometheus or a scrape) and the state document (engine → operator, the acknowledgement). Standard library
only: this package is imported inside the user's vLLM image as well as in the operator.
"""

from specpilot_engine.protocol.interval import *
from specpilot_engine.protocol.names import *
from specpilot_engine.protocol.profile import *
from specpilot_engine.protocol.schedule import *
from specpilot_engine.protocol.shape import *

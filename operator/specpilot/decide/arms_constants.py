"""Every constant of the choice among arms; docs/tuning.md gives reasons and worked values.

Times are seconds. Gains and deviations are differences of natural logarithms of goodput.
"""

from __future__ import annotations

HORIZON = 4 * 3600.0  # for which a better arm is expected to stay better
REPAY = 2.0  # restarts that a gain must repay in that time: there, and perhaps back
DWELLS = 15.0  # spec.tuning.dwell, between two changes of arm and while a new one is judged
GATE_Z = 1.0  # deviations by which another arm must be better
CLEAR_Z = 2.0  # deviations at which a loss is clear before the time is over
LEAST_LOOKS = 10  # with traffic, of the arm in force, before another is thought of
CLEAR_LOOKS = 5  # of a new arm, before a loss can be clear
FORGET = 0.5  # share of the gain asked for, below which an arm is recommended no longer

# What an arm's goodput is beyond that of the same depth under a schedule: mean and deviation, before any
# of it was measured.
SCHEDULE_PRIOR = (0.0, 0.01)
PADDED_PRIOR = (0.02, 0.02)  # a one-token arrival no longer drops a step out of its full graph
NO_GRAPHS_PRIOR = (0.0, 0.02)  # without graphs a schedule costs a look at a list
# vLLM's time per token at depth 0 of a schedule over that without a drafter, by running requests.
ZERO_DEPTH_OVERHEAD = ((2, 1.066), (189, 1.216))
ZERO_DEPTH_DOUBT = 0.5  # deviation as a share of it: measured on one model, with the older runner
# vLLM's adaptive verification over the best fixed depth at the same load, in the one table published.
ADAPTIVE_GAIN = ((64, 0.05), (128, 0.0))
ADAPTIVE_DOUBT = 0.06  # other tables show it 5 to 8% behind

BLIND = 24 * 3600.0  # without seeing what drafts would be worth, after which a schedule is tried again
BLIND_RESTARTS = 200.0  # start-up times that this is at least, so that looking costs 1% at most
HALF_LIFE = 3600.0  # of what was measured of an arm, in time with traffic
STALE_HALF_LIFE = 24 * 3600.0  # the same while another arm is in force
FLOOR = 0.01  # deviation below which nothing measured in another hour is trusted
BARRED_LENGTH = 0.1  # log change of accepted length after which an undone arm may be tried again
BARRED_LOAD = 0.5  # share of time at other batch sizes, the same
START_FACTOR, START_MARGIN = 5.0, 600.0  # start-up times, and seconds, in which one more pod must be ready
START_UNKNOWN = 7800.0  # the same where no pod has told how long it takes

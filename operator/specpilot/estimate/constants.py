"""Every constant of estimation and decision, in one place; docs/tuning.md gives reasons and worked values.

Times are seconds. "Log" means a difference of natural logarithms: 0.05 is 5%.
"""

from __future__ import annotations

# Windows
LONGEST_WINDOW = 900.0  # a longer gap mixes regimes
CHURN_STEPS = 200.0  # none of them clean: requests come and go so fast that inter-token latency stands in
# A mean depth further from a whole number, more steps that explored, or more requests without drafts among others: of
# several depths.
MIXED_DEPTHS = 0.1
PROMPT_HEAVY = 4.0  # prompt tokens a generated one, above which inter-token latency is no step time

# Survival
PRIOR_ACCEPTANCE = 0.65  # conditional acceptance of a slot before anything is known
PRIOR_DRAFTS = 6.0  # drafts' worth of that belief
LEAST_ACCEPTANCE = 1e-4  # conditional acceptance is believed to be no less, and no nearer to 1
TOLD_ACCEPTANCE = 5e-3  # beyond which, at either end, a slot tells nothing more of others
LEAST_REACH = 0.05  # share of drafts that come as far as a slot, at which a belief of it is counted at least
SLOT_SPREAD = 1.0  # log odds by which a slot differs from what was believed of it before it was seen
CARRY_DRAFTS = 24.0  # drafts' worth of a deeper slot's belief that is left after a shift
SURVIVAL_HALF_LIFE = 300.0  # of traffic
RARELY_SEEN = 1 / 6  # of that speed, at which positions fade that are hardly ever drafted
ALIKE = 0.04  # correlation of drafts of one request
REQUEST_DRAFTS = 100.0  # of one request, before another takes its place
DISPERSION_RANGE = (0.25, 100.0)  # of the variance seen between windows over the one expected
DISPERSION_FIRST_WINDOWS = 4.0  # windows that its first value, 1, counts for
DISPERSION_WINDOWS = 40.0  # windows remembered, of either dispersion
LEAST_DRAFTS = 5.0  # independent drafts' worth, of window and memory, for a test
SHIFT_Z = 4.0  # windows this far from memory are a shift
SHIFT_WINDOWS = 4  # of acceptance, that are held against memory together
SHIFT_Z_TWICE = 2.6  # of step times: or two in a row, on the same side
SHIFT_SURVIVAL = 0.03  # smaller shifts are left to forgetting

# Cost
GENERIC_ROW = 1 / 48  # a row's share of the fixed cost, without a profile
GENERIC_DRAFT = 0.04  # a draft slot's share of the fixed cost, without a profile
GENERIC_STEP = 0.02  # the fixed cost itself, without a profile
SIGMA_PROFILED = (0.25, 0.05, 0.05, 0.05)  # log errors expected of a profile: all, depth, batch, point
SIGMA_GENERIC = (1.5, 0.25, 0.3, 0.15)  # and of the generic shape
SIGMA_SHAPED = (1.0, 0.12, 0.15, 0.08)  # and of an estimate by the model's shape
SIGMA_SCALES = (2.0, 4.0)  # times the last three, as far as step times seen bear it out
DOUBT = 1.0  # log likelihood that each of them must gain
DEPTH_RANGE = 1.5  # over which depth errors are alike, in log2(1 + k)
BATCH_RANGE = 2.0  # over which batch errors are alike, in log2(B)
STEP_NOISE = 0.15  # log deviation of one step's time
WINDOW_NOISE = 0.05  # log deviation that all steps of a window share
COST_HALF_LIFE = 3600.0  # of traffic
COST_FIRST_WINDOWS = 6.0  # windows that its first dispersion, 1, counts for
COST_DISPERSION_RANGE = (0.05, 25.0)
CONTRAST_Z = 5.5  # depths this far from memory against each other are a shift
CARRY_COST = 0.05  # share of the evidence that is left when depths moved against each other
LEAST_STEPS = 8.0  # clean steps of a cell before it takes part in a test
MOST_CELLS = 24  # remembered, those with most evidence
FORGOTTEN_STEPS = 0.5  # a cell with less evidence is dropped

# Cost by the model's shape; measured ones are named in docs/tuning.md
TYPICAL_CONTEXT = 4096.0  # tokens a request, where no context has been seen
BANDWIDTH_REACHED = 0.7  # of the data sheet's, in decode steps
COMPUTE_REACHED = 0.3  # the same, at the few rows of decode steps
GROUPED_REACHED = 0.15  # and where each expert gets a few of those
LINK_REACHED = 0.5
GPU_STEP, GPU_LAYER, GPU_ROW, GPU_DRAFT = (
    5e-4,
    2e-5,
    3e-6,
    4e-4,
)  # a step, a layer, a row, a pass of a drafter
EXCHANGE = 3e-5  # more a layer that several devices share
ROUTING = 8e-5  # more a layer with routed experts
CPU_BANDWIDTH, CPU_COMPUTE = 1.5e10, 2.5e11
CPU_STEP, CPU_LAYER, CPU_ROW, CPU_DRAFT = 4e-3, 3e-4, 3e-4, 1e-3

# Load
LOAD_HALF_LIFE = 60.0
LOAD_GONE = 0.9  # share of a window's time at other batch sizes that makes it another load

# Decision
FRESH_WINDOWS = 2  # before the first change, after a start or a restart
SELECT_Z = 0.7  # a depth replaces another where it is better by so many standard deviations
GATE_Z = 1.0  # and the whole schedule must be
TRIAL_GATE_Z = 0.3  # the same where a trial proves it
RETURN_Z = 2.5  # the same for going back to the depth that was left
RETURN_SECONDS = 900.0  # so lately
LEAST_GAIN = 0.004  # log; nothing below is worth a change, whatever minimumGain says
IDLE_GAIN = 0.1  # log; a gain at batch sizes not seen lately that is worth a change; news of them trickles in
MOVED_SHARE = 0.01  # of time at batch sizes whose depth changed: less is no change at the load
SURE_Z = 3.0  # a gain this certain
SURE_GAIN = 0.05  # and this large does not wait for dwell either: the depth in force proved wrong
NEAR_LOAD = 1.5  # batch sizes within this factor of each other are the same load
SHIFT_WAIVER = 90.0  # after a shift, for which dwell is waived
LOAD_SHIFT = 0.5  # share of time that moved to other batch sizes
MAX_STEPS = 6  # of a schedule
MERGE_TOLERANCE = 0.004  # log; what merging may lose at any batch size
STEP_PRICE = 0.0005  # log; what one step fewer is worth
ROUGH_PRICE = 0.0002  # log; what a rounder boundary is worth
LOAD_WEIGHT = 0.7  # of the batch sizes seen, the rest going evenly to all sizes

# Exploration
EXPLORE_AHEAD = 60.0  # what exploring for so long would teach is compared with its price
EXPLORE_HORIZON = 600.0  # for which a better choice is expected to pay
EXPLORE_MORE = 1.5  # benefit over price at which the whole price is spent
EXPLORE_LESS = 0.4  # and below which only a trace is
EXPLORE_KEEP = 0.5  # the depth explored stays while it promises so much, of the most promising
EXPLORE_KEEP_TRACE = 0.1  # the same at a trace, where a change is worth more than what is explored
EXPLORE_TRACE = 0.1  # share of the price
EXPLORE_BLIND = 0.6  # the same while depth 0 is in force and nothing else is seen
MOST_EXPLORED = 0.2  # of steps, whatever they cost; the engine's own bound
EXPLORE_REACH = 0.5  # of the load, at which a depth must be allowed to be explored
EXPLORE_CLEAN = 0.5  # share of exploring steps that can be timed
LENGTH_NOISE = 0.5  # log deviation of one request's accepted length in one step
LEAST_COST = 0.025  # of an exploring step, of a step's goodput
DEAR_COST = 2.5  # a cost stated so many times too high is corrected
STALE_COST = 8.0  # a cost stated so many times too high is corrected even at a trace
EXPLORATION_DWELL = 30.0
EXPLORATION_FALL = 2.0  # the load may fall so far before the next look
EXPLORATION_EDGE = 4.0  # explore at batches where a step costs at most so many times the stated cost

# Trials
TRIAL_REQUESTS = 64.0  # requests times steps of a slice
TRIAL_SLICE = (4, 8, 16)  # steps of a slice of the old schedule: where the gain is large, and otherwise
TRIAL_SLICE_Z = 1.0  # deviations of one pair that make the aim, in slices no shorter than that
TRIAL_FAVOUR = 3.0  # times as many steps of the new schedule, at most
TRIAL_AIM = 0.5  # of the predicted gain is to stand out from the noise of one pair
TRIAL_LEAST_AIM = 0.01  # log; less takes longer than it is worth
TRIAL_PAIRS = 12  # that a trial may have at least
TRIAL_SECONDS = 660.0  # of decoding, which a trial may take at most
TRIAL_CLEAR = 5  # pairs before a trial can be clear
TRIAL_ENOUGH = 8  # pairs that a trial without a result was a trial with
TRIAL_GONE = 0.1  # share of time at batch sizes where the two differ, below which their load is gone
TRIAL_STALLED = 90.0  # with traffic and without a new pair
TRIAL_LONGEST = 900.0  # with traffic
PROOF_Z = 2.0  # at which what is believed and what was measured, taken together, bear a change out
PROOF_Z_EARLY = 4.0  # and before the last pair
MOST_UNDONE = 16  # changes remembered as undone

# Memory
MATERIAL_LENGTH = 0.04  # log change of an accepted length that is worth a write
MATERIAL_COST = 0.06  # log change of a step time
MATERIAL_EVIDENCE = 4.0  # factor by which evidence grew
MATERIAL_COUNT = 64.0  # to at least so many steps, or independent drafts

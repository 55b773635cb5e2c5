"""Ports, paths, environment variables and series: every name that crosses."""

from __future__ import annotations

PORT = 9101  # of the engine package inside the engine process: GET METRICS_PATH, STATE_PATH, STEPS_PATH
PROFILER_PORT = 9102  # of the profiler beside it: GET PROFILE_PATH
METRICS_PATH, STATE_PATH, STEPS_PATH = "/metrics", "/v1/state", "/v1/steps"
PROFILE_PATH = "/v1/profile"

# Environment of the engine container, set by the plan and read by the engine package.
ENV_SCHEDULE_FILE = "SPECPILOT_SCHEDULE_FILE"
ENV_OVERRIDE_FILE = "SPECPILOT_OVERRIDE_FILE"  # a schedule that wins while it is younger than OVERRIDE_TTL
ENV_PORT = "SPECPILOT_PORT"
ENV_HOST = "SPECPILOT_HOST"  # the one address to serve on, of the profiler too; all without it, as in a pod
ENV_SIM = "SPECPILOT_SIM"  # the simulated engine's truth as JSON (specpilot_engine.sim); vLLM ignores it
# Environment of the profiler container, which runs beside the engine in the same pod.
ENV_PROFILE = "SPECPILOT_PROFILE"  # what to measure, a ProfileRequest as JSON
ENV_PROFILE_FILE = "SPECPILOT_PROFILE_FILE"  # where measured points are kept, resumable
ENV_PROFILED_FILE = "SPECPILOT_PROFILED_FILE"  # names the request for which nothing is left to measure
ENV_PROFILER_PORT = "SPECPILOT_PROFILER_PORT"
ENV_READY_FILE = "SPECPILOT_READY_FILE"  # made when the engine may serve, whatever became of the profile
ENV_ENGINE_URL = "SPECPILOT_ENGINE_URL"  # the engine's OpenAI API, e.g. http://127.0.0.1:8000

# The profiler touches its override while it works: one left behind by a profiler that died must not
# hold a depth for ever.
OVERRIDE_TTL = 15.0  # seconds since the file's mtime

# Exported series: at most MAX_SERIES a replica. What is left by those that come and go bounds the cells of
# (k, batch bucket), so that there are as many cells at any time: a reader can tell whether one was hidden.
MAX_SERIES = 64
FIXED_SERIES = 7  # those without a cell or a position
TRIAL_SERIES = 4  # more while a schedule is on trial
BUDGET_SERIES = 4  # more while the schedule asks for a row budget
SERIES_PER_CELL = 5
MIN_CELLS, MAX_CELLS = 3, 10
_SPARE = MAX_SERIES - FIXED_SERIES - TRIAL_SERIES - BUDGET_SERIES
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # upper edges of running requests in a step
M_LIVE = "specpilot_live_tuning"  # gauge 0/1, label reason ("" when live)
M_GENERATION = "specpilot_schedule_generation"  # gauge: generation in force
M_STEPS = "specpilot_steps_total"  # clean decode steps, labels k, batch
M_SECONDS = "specpilot_step_seconds_total"  # their time
M_REQUESTS = "specpilot_step_requests_total"  # running requests summed over them
M_EMITTED = "specpilot_emitted_tokens_total"  # tokens emitted in them
M_CONTEXT = "specpilot_step_context_tokens_total"  # context tokens summed over requests of clean steps
M_ALL_STEPS = "specpilot_engine_steps_total"  # every step, clean or not
M_DRAFTED = (
    "specpilot_drafted_tokens_total"  # requests whose draft had this position, label position (0-based)
)
M_ACCEPTED = "specpilot_accepted_tokens_total"  # of those, accepted at this position
M_EXPLORED_STEPS = "specpilot_exploration_steps_total"  # steps taken to explore
M_EXPLORATION = "specpilot_exploration_share"  # gauge: share of goodput that exploring cost lately
M_SHAPE = "specpilot_model_shape_info"  # gauge 1, labels ModelShape.labels(); none where the model is not understood
# A schedule under trial against the one before: always the first, so that an engine that cannot compare
# schedules is known, the others while there is a trial.
M_TRIAL_PAIRS = "specpilot_trial_pairs"  # gauge: pairs of slices compared, 0 without a trial
M_TRIAL_GENERATION = "specpilot_trial_generation"  # gauge: the schedule they are of
M_TRIAL_GAIN = "specpilot_trial_log_gain_sum"  # gauge: their log ratios of goodput, new over old, summed
M_TRIAL_SQUARES = "specpilot_trial_log_gain_square_sum"  # gauge: the squares of those summed
M_TRIAL_RUNNING = "specpilot_trial_running"  # gauge: 1 while the two alternate, 0 once the engine is through
# Only while the schedule asks for a row budget.
M_BUDGET = "specpilot_row_budget"  # gauge: 1 while drafts are cut, 0 while all are verified; label reason
M_ROWS_VERIFIED = "specpilot_verified_rows_total"  # draft rows verified
M_ROWS_TRIMMED = "specpilot_trimmed_rows_total"  # draft rows left out
M_PROBES = "specpilot_budget_probe_steps_total"  # whole steps taken while drafts are cut


def exported_positions(max_tokens: int) -> int:
    """How many draft positions an engine exports: one deeper is rarer than the cells it would displace."""
    return min(max_tokens, (_SPARE - MIN_CELLS * SERIES_PER_CELL) // 2)


def exported_cells(max_tokens: int) -> int:
    """How many cells an engine exports at most, those of the latest steps."""
    return min(MAX_CELLS, (_SPARE - 2 * exported_positions(max_tokens)) // SERIES_PER_CELL)


def bucket(batch: int) -> int:
    """The batch bucket, by its upper edge, that a step with `batch` running requests counts in."""
    for edge in BUCKETS:
        if batch <= edge:
            return edge
    return BUCKETS[-1]

"""Every constant of the caps on depth; docs/tuning.md gives reasons and worked values. Times are seconds."""

from __future__ import annotations

REST_DWELLS = 5.0  # spec.tuning.dwell, between two trials of caps
TRIAL_COST = 3.0  # of goodput that a trial of a cap may cost; over explorationPrice it is the rest as well
MOST_DOUBLED = 5  # trials in a row without a change after each of which the rest doubles
LENGTH_CHANGED = (
    0.1  # log change of tokens per request and step after which what was undone may be tried again
)
BATCH_CHANGED = 1.5  # the same, of the number of requests
LENGTH_REQUESTS = 400.0  # requests' steps from which such a length is read
LOOK_AGAIN = 4 * 3600.0  # after which a cap of 0, under which nothing is seen of drafts, may be left again
MOST_BARRED = 32  # changes remembered as undone
MERGE_DEEPER, MERGE_SHALLOWER = 0.05, 0.5  # log loss for each candidate too deep or too shallow, where merged

"""vLLM's API server with its engine core as a fork of it, as on a GPU: one process imports vLLM, not two.

On a CPU vLLM does not fork, for the sake of threads that bind themselves to cores: here is but one.
"""

import multiprocessing

from vllm.utils import system_utils

system_utils.get_mp_context = lambda: multiprocessing.get_context("fork")

from vllm.entrypoints.launchers.api_server.entry import main  # noqa: E402

main()

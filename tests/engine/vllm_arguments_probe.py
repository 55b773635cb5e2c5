"""Run by vLLM's own Python: what its parser and configuration classes make of command lines.

Standard input is a JSON list of {"line": [argument, …], "whole": build the engine's configuration too};
standard output a JSON list of what was understood. Only where all is built the models' files are looked for.
"""

from __future__ import annotations

import json
import sys
from typing import Any, get_type_hints

from huggingface_hub import constants
from pydantic import TypeAdapter
from vllm.config.speculative import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args

HINTS = get_type_hints(SpeculativeConfig)


def understood(line: list[str], whole: bool) -> dict[str, Any]:
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(line)
    validate_parsed_serve_args(args)
    constants.HF_HUB_OFFLINE = whole
    engine = AsyncEngineArgs.from_cli_args(args)
    given = engine.speculative_config or {}
    found = {
        "host": args.host,
        "port": args.port,
        "model": engine.model,
        "revision": engine.revision,
        "served": engine.served_model_name,
        "ranks": [engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.data_parallel_size],
        "drain": engine.shutdown_timeout,
        "scheduler": engine.scheduler_cls,
        "sizes": engine.cudagraph_capture_sizes,
        "sequences": engine.max_num_seqs,
        "speculation": {name: TypeAdapter(HINTS[name]).validate_python(x) for name, x in given.items()},
    }
    if whole:
        config = engine.create_engine_config(UsageContext.OPENAI_API_SERVER)
        speculation = config.speculative_config
        found["effective"] = {
            "method": speculation.method,
            "model": speculation.draft_model_config.model,
            "tokens": speculation.num_speculative_tokens,
            "lookup": build_dynamic_sd_schedule_lookup(
                speculation.num_speculative_tokens_per_batch_size,
                config.scheduler_config.max_num_seqs,
                speculation.num_speculative_tokens,
            ),
            "scheduler": config.scheduler_config.scheduler_cls,
        }
    return found


print(json.dumps([understood(case["line"], case["whole"]) for case in json.load(sys.stdin)]))

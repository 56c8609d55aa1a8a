"""Flags and variables that older vLLMs took and guides still show, with what took their place."""

from collections.abc import Mapping

GONE_FLAGS: Mapping[str, str] = {
    "calculate_kv_scales": "scales come with the checkpoint",
    "cuda_graph_sizes": "use cudagraph_capture_sizes",
    "device": "the platform is found at the start",
    "disable_log_requests": "request logging is off unless enable_log_requests is true",
    "enable_reasoning": "reasoning_parser alone is enough",
    "guided_decoding_backend": "use structured_outputs_config.backend",
    "max_long_partial_prefills": "nothing took its place",
    "max_num_partial_prefills": "nothing took its place",
    "max_seq_len_to_capture": "use max_cudagraph_capture_size",
    "ngram_prompt_lookup_max": "use speculative_config.prompt_lookup_max",
    "ngram_prompt_lookup_min": "use speculative_config.prompt_lookup_min",
    "num_lookahead_slots": "it follows from speculative_config",
    "num_scheduler_steps": "the engine schedules asynchronously (async_scheduling)",
    "num_speculative_tokens": "use speculative_config.num_speculative_tokens",
    "preemption_mode": "requests are always recomputed",
    "rope_scaling": "use hf_overrides",
    "rope_theta": "use hf_overrides",
    "scheduler_delay_factor": "nothing took its place",
    "speculative_draft_tensor_parallel_size": "use speculative_config.draft_tensor_parallel_size",
    "speculative_model": "use speculative_config.model",
    "swap_space": "preempted requests are recomputed, not swapped",
    "task": "use runner and convert",
    "use_v2_block_manager": "there is only one",
}

GONE_VARIABLES: Mapping[str, str] = {
    "VLLM_ATTENTION_BACKEND": "use the flag attention_backend",
    "VLLM_FLASHINFER_MOE_BACKEND": "use the flag moe_backend",
    "VLLM_FP8_MOE_BACKEND": "it never existed; use the flag moe_backend",
    "VLLM_NVFP4_GEMM_BACKEND": "use the flag linear_backend",
    "VLLM_USE_FLASHINFER_MOE_FP4": "use the flag moe_backend",
    "VLLM_USE_V1": "there is no other engine any more",
}

INTERNAL_VARIABLES: Mapping[str, str] = {
    "VLLM_PORT": "it sets the engine's internal ports, not the API's; two servers with one value clash",
}

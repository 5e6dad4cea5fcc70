-- Which scraped series mean what: canonical name and unit, the factor into that unit, and whether it is a name that was given up.
-- Where an engine exposes the old and the new name at once, take the row with Former = 0. Notes on meaning are in docs/engines.md.
CREATE VIEW metric_names AS
SELECT * FROM values('Name String, Canonical String, Unit String, Factor Float64, Former UInt8',
  ('vllm:num_requests_waiting', 'queue_depth', '{request}', 1, 0),
  ('sglang:num_queue_reqs', 'queue_depth', '{request}', 1, 0),
  ('tgi_queue_size', 'queue_depth', '{request}', 1, 0),
  ('nv_inference_pending_request_count', 'queue_depth', '{request}', 1, 0),
  ('dynamo_frontend_queued_requests', 'queue_depth', '{request}', 1, 0),
  ('vllm:num_requests_running', 'running', '{request}', 1, 0),
  ('sglang:num_running_reqs', 'running', '{request}', 1, 0),
  ('tgi_batch_current_size', 'running', '{request}', 1, 0),
  ('dynamo_frontend_inflight_requests', 'running', '{request}', 1, 0),
  ('vllm:kv_cache_usage_perc', 'kv_usage', '1', 1, 0),
  ('sglang:token_usage', 'kv_usage', '1', 1, 0),
  ('dynamo_component_kvstats_gpu_cache_usage_percent', 'kv_usage', '1', 1, 0),
  ('vllm:time_to_first_token_seconds', 'ttft', 's', 1, 0),
  ('sglang:time_to_first_token_seconds', 'ttft', 's', 1, 0),
  ('nv_inference_first_response_histogram_ms', 'ttft', 's', 0.001, 0),
  ('dynamo_frontend_time_to_first_token_seconds', 'ttft', 's', 1, 0),
  ('vllm:inter_token_latency_seconds', 'itl', 's', 1, 0),
  ('sglang:inter_token_latency_seconds', 'itl', 's', 1, 0),
  ('tgi_request_mean_time_per_token_duration', 'itl', 's', 1, 0),
  ('dynamo_frontend_inter_token_latency_seconds', 'itl', 's', 1, 0),
  ('vllm:request_time_per_output_token_seconds', 'tpot', 's', 1, 0),
  ('sglang:request_time_per_output_token_seconds', 'tpot', 's', 1, 0),
  ('vllm:request_queue_time_seconds', 'queue_time', 's', 1, 0),
  ('sglang:queue_time_seconds', 'queue_time', 's', 1, 0),
  ('tgi_request_queue_duration', 'queue_time', 's', 1, 0),
  ('nv_inference_queue_duration_us', 'queue_time', 's', 1e-06, 0),
  ('vllm:request_prefill_time_seconds', 'prefill_time', 's', 1, 0),
  ('vllm:request_decode_time_seconds', 'decode_time', 's', 1, 0),
  ('vllm:num_preemptions_total', 'preemptions', '{preemption}', 1, 0),
  ('sglang:num_retracted_reqs', 'preemptions', '{preemption}', 1, 0),
  ('vllm:prefix_cache_queries_total', 'prefix_cache_queries', '{token}', 1, 0),
  ('vllm:prefix_cache_hits_total', 'prefix_cache_hits', '{token}', 1, 0),
  ('sglang:cache_hit_rate', 'prefix_hit_ratio', '1', 1, 0),
  ('dynamo_frontend_kv_hit_rate', 'prefix_hit_ratio', '1', 1, 0),
  ('nv_cache_num_hits_per_model', 'cache_hits', '{request}', 1, 0),
  ('vllm:iteration_tokens_total', 'step_tokens', '{token}', 1, 0),
  ('tgi_batch_current_max_tokens', 'step_tokens', '{token}', 1, 0),
  ('vllm:prompt_tokens_total', 'prompt_tokens', '{token}', 1, 0),
  ('sglang:prompt_tokens_total', 'prompt_tokens', '{token}', 1, 0),
  ('vllm:generation_tokens_total', 'generation_tokens', '{token}', 1, 0),
  ('sglang:generation_tokens_total', 'generation_tokens', '{token}', 1, 0),
  ('sglang:kv_transfer_latency_ms', 'kv_transfer_time', 's', 0.001, 0),
  ('DCGM_FI_DEV_GPU_UTIL', 'gpu_busy', '1', 0.01, 0),
  ('nv_gpu_utilization', 'gpu_busy', '1', 1, 0),
  ('DCGM_FI_PROF_SM_ACTIVE', 'gpu_sm_active', '1', 1, 0),
  ('DCGM_FI_PROF_GR_ENGINE_ACTIVE', 'gpu_engine_active', '1', 1, 0),
  ('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE', 'gpu_tensor_active', '1', 1, 0),
  ('DCGM_FI_PROF_DRAM_ACTIVE', 'gpu_dram_active', '1', 1, 0),
  ('DCGM_FI_DEV_FB_USED', 'gpu_memory_used', 'By', 1048576, 0),
  ('nv_gpu_memory_used_bytes', 'gpu_memory_used', 'By', 1, 0),
  ('DCGM_FI_DEV_FB_FREE', 'gpu_memory_free', 'By', 1048576, 0),
  ('DCGM_FI_DEV_POWER_USAGE', 'gpu_power', 'W', 1, 0),
  ('nv_gpu_power_usage', 'gpu_power', 'W', 1, 0),
  ('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION', 'gpu_energy', 'J', 0.001, 0),
  ('nv_energy_consumption', 'gpu_energy', 'J', 1, 0),
  ('DCGM_FI_DEV_SM_CLOCK', 'gpu_sm_clock', 'Hz', 1000000.0, 0),
  ('DCGM_FI_DEV_GPU_TEMP', 'gpu_temperature', 'Cel', 1, 0),
  ('DCGM_FI_PROF_PCIE_TX_BYTES', 'gpu_pcie_tx', 'By/s', 1, 0),
  ('DCGM_FI_PROF_PCIE_RX_BYTES', 'gpu_pcie_rx', 'By/s', 1, 0),
  ('DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL', 'gpu_nvlink', 'By/s', 1000000.0, 0),
  ('vllm:gpu_cache_usage_perc', 'kv_usage', '1', 1, 1),
  ('vllm:gpu_prefix_cache_queries_total', 'prefix_cache_queries', '{token}', 1, 1),
  ('vllm:gpu_prefix_cache_hits_total', 'prefix_cache_hits', '{token}', 1, 1),
  ('vllm:time_per_output_token_seconds', 'itl', 's', 1, 1));

-- Gauges and sums of engines and exporters under canonical names and units; what was scraped stays as it was in otel_metrics_*.
CREATE VIEW engine_metrics AS
SELECT m.TimeUnix AS TimeUnix, m.ServiceName AS ServiceName, m.ResourceAttributes['service.instance.id'] AS Instance,
  n.Canonical AS Canonical, n.Unit AS Unit, m.Value * n.Factor AS Value, m.Cumulative AS Cumulative, m.Attributes AS Attributes,
  m.MetricName AS MetricName, n.Former AS Former
FROM (
  SELECT TimeUnix, ServiceName, ResourceAttributes, MetricName, Value, Attributes, false AS Cumulative FROM otel_metrics_gauge
  UNION ALL
  SELECT TimeUnix, ServiceName, ResourceAttributes, MetricName, Value, Attributes, true AS Cumulative FROM otel_metrics_sum
) AS m INNER JOIN metric_names AS n ON m.MetricName = n.Name;

-- Histograms likewise; counts are cumulative since the engine's start.
CREATE VIEW engine_histograms AS
SELECT h.TimeUnix AS TimeUnix, h.ServiceName AS ServiceName, h.ResourceAttributes['service.instance.id'] AS Instance,
  n.Canonical AS Canonical, n.Unit AS Unit, h.Count AS Count, h.Sum * n.Factor AS Sum, h.BucketCounts AS BucketCounts,
  arrayMap(bound -> bound * n.Factor, h.ExplicitBounds) AS ExplicitBounds, h.Attributes AS Attributes, h.MetricName AS MetricName, n.Former AS Former
FROM otel_metrics_histogram AS h INNER JOIN metric_names AS n ON h.MetricName = n.Name;

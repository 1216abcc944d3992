//! Writes a synthetic profile in every format, to look at and to test the page with.
//!
//! `cargo run -p launchscope --example sample_profile -- DIRECTORY [decode|empty|hostile|big]`
//!
//! `decode` looks like an engine that serves a Qwen3 model and replays CUDA graphs for decoding, `empty` saw
//! no GPU work, `hostile` has names that try to break out of every format, `big` has tens of thousands of
//! frames.

use std::collections::HashMap;
use std::path::PathBuf;

use launchscope::aggregate::profile::{Frame, FrameId, Layer, Profile, WeightedStack, Weights};
use launchscope::export::{Format, write_all};

mod around; // totals, ledger, statuses, hooks
mod odd; // the scenarios empty, hostile and big

use around::{hooks, kernel_totals, ledger, meta, statuses};
use odd::{big, empty, hostile};

const PROCESS_ID: u32 = 4242;
/// Share of the run in which windows were open; recorded weights are this part of the estimates.
const WINDOW_SHARE: f64 = 0.0071;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        PathBuf::from(arguments.next().ok_or("usage: sample_profile DIRECTORY [decode|empty|hostile|big]")?);
    let scenario = arguments.next().unwrap_or_else(|| "decode".to_owned());
    let profile = match scenario.as_str() {
        "decode" => decode(),
        "empty" => empty(),
        "hostile" => hostile(),
        "big" => big(),
        other => return Err(format!("unknown scenario `{other}`").into()),
    };
    for path in write_all(&profile, &directory, &Format::ALL)? {
        println!("{}", path.display());
    }
    Ok(())
}

/// Interns frames and collects stacks.
#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    ids: HashMap<Frame, FrameId>,
    stacks: Vec<WeightedStack>,
}

impl Builder {
    fn frame(&mut self, frame: Frame) -> FrameId {
        let next = FrameId(self.frames.len() as u32);
        let id = *self.ids.entry(frame.clone()).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }

    /// Frames from a text: one a line, `layer name @ file:line` or `layer name | full name`.
    fn stack(&mut self, text: &str) -> Vec<FrameId> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| self.line(line)).collect()
    }

    fn line(&mut self, line: &str) -> FrameId {
        let (layer, rest) = line.split_once(' ').expect("a layer");
        let layer = match layer {
            "proc" => Layer::Process,
            "py" => Layer::Python,
            "nat" => Layer::Native,
            "api" => Layer::CudaApi,
            "graph" => Layer::Graph,
            _ => Layer::Kernel,
        };
        let (rest, place) = rest.split_once(" @ ").unwrap_or((rest, ""));
        let (name, full_name) = rest.split_once(" | ").unwrap_or((rest, ""));
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) => (file, line.parse().expect("a line")),
            None => (place, 0),
        };
        self.frame(Frame {
            layer,
            name: name.to_owned(),
            full_name: full_name.to_owned(),
            file: file.to_owned(),
            line,
        })
    }

    /// Adds a stack that runs `kernel` `count` times for `mean_us` each.
    fn add(&mut self, launch: &[FrameId], capture: &[FrameId], kernel: FrameId, count: f64, mean_us: f64) {
        let with_kernel = |frames: &[FrameId]| frames.iter().copied().chain([kernel]).collect();
        let gpu_time_ns = count * mean_us * 1000.0;
        self.stacks.push(WeightedStack {
            launch_view: with_kernel(launch),
            capture_view: with_kernel(capture),
            weights: Weights {
                gpu_time_ns,
                recorded_gpu_time_ns: (gpu_time_ns * WINDOW_SHARE).round(),
                recorded_count: (count * WINDOW_SHARE).round(),
                launches: 0.0,
            },
            process_id: PROCESS_ID,
            device: Some(0),
        });
    }

    /// Adds a stack that was only counted.
    fn count(&mut self, launch: &[FrameId], launches: f64) {
        self.stacks.push(WeightedStack {
            launch_view: launch.to_vec(),
            capture_view: launch.to_vec(),
            weights: Weights { launches, ..Weights::default() },
            process_id: PROCESS_ID,
            device: None,
        });
    }

    fn finish(self) -> Profile {
        let kernels = kernel_totals(&self.frames, &self.stacks);
        Profile {
            meta: meta("vllm serve Qwen/Qwen3-8B --max-num-seqs 64"),
            frames: self.frames,
            stacks: self.stacks,
            kernels,
            ledger: ledger(),
            statuses: statuses(),
            hooks: hooks(),
        }
    }
}

const ENGINE: &str = "
    proc VLLM::EngineCore (4242)
    py run_engine_core @ /opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py:861
    py EngineCoreProc.run_busy_loop @ /opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py:888
    py EngineCore.step @ /opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py:347
    py UniProcExecutor.execute_model @ /opt/venv/lib/python3.12/site-packages/vllm/v1/executor/uniproc_executor.py:95
    py Worker.execute_model @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py:571
    py GPUModelRunner.execute_model @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:3012";
const CAPTURE: &str = "
    proc VLLM::EngineCore (4242)
    py run_engine_core @ /opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py:861
    py EngineCore._initialize_kv_caches @ /opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py:214
    py Worker.compile_or_warm_up_model @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py:412
    py GPUModelRunner.capture_model @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:4633
    py GPUModelRunner._dummy_run @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:4120";
const REPLAY: &str = "
    py CUDAGraphWrapper.__call__ @ /opt/venv/lib/python3.12/site-packages/vllm/compilation/cuda_graph.py:263
    py CUDAGraph.replay @ /opt/venv/lib/python3.12/site-packages/torch/cuda/graphs.py:139
    nat at::cuda::CUDAGraph::replay | at::cuda::CUDAGraph::replay() @ libtorch_cuda.so
    nat cudaGraphLaunch @ libcudart.so.13
    api cuGraphLaunch";
const LAYER: &str = "
    py Qwen3ForCausalLM.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/qwen3.py:330
    py Qwen3Model.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/qwen2.py:399";
const DECODER: &str = "py Qwen3DecoderLayer.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/qwen3.py";
const LINEAR: &str = "
    py UnquantizedLinearMethod.apply @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/linear.py:228
    py linear @ /opt/venv/lib/python3.12/site-packages/torch/nn/functional.py:2318
    nat at::native::linear | at::native::linear(at::Tensor const&, at::Tensor const&, std::optional<at::Tensor> const&) @ libtorch_cpu.so
    nat at::cuda::blas::gemm | void at::cuda::blas::gemm<c10::BFloat16>(char, char, long, long, long, float, c10::BFloat16 const*, long, c10::BFloat16 const*, long, float, c10::BFloat16*, long) @ libtorch_cuda.so
    nat cublasGemmEx @ libcublas.so.13";

/// What runs in a layer: frames under `Qwen3DecoderLayer.forward`, kernel, runs per layer and step,
/// microseconds.
fn layer_work() -> Vec<(u32, String, &'static str, f64, f64)> {
    let attention = "py Qwen3Attention.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/qwen3.py";
    let mlp =
        "py Qwen2MLP.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/qwen2.py";
    let ops = "/opt/venv/lib/python3.12/site-packages/vllm/_custom_ops.py";
    let norm = format!(
        "py RMSNorm.forward_cuda @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/layernorm.py:187\npy fused_add_rms_norm @ {ops}:331\nnat fused_add_rms_norm @ _C.abi3.so\napi cuLaunchKernel"
    );
    let flash = format!(
        "{attention}:152\npy Attention.forward @ /opt/venv/lib/python3.12/site-packages/vllm/attention/layer.py:318\npy FlashAttentionImpl.forward @ /opt/venv/lib/python3.12/site-packages/vllm/v1/attention/backends/flash_attn.py:672"
    );
    vec![
        (218, norm.clone(), NORM, 1.0, 3.1),
        (
            221,
            format!(
                "{attention}:139\npy QKVParallelLinear.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/linear.py:565{LINEAR}\napi cuLaunchKernelEx"
            ),
            GEMM_QKV,
            1.0,
            17.4,
        ),
        (
            221,
            format!(
                "{attention}:146\npy RMSNorm.forward_cuda @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/layernorm.py:187\npy rms_norm @ {ops}:324\nnat rms_norm @ _C.abi3.so\napi cuLaunchKernel"
            ),
            QK_NORM,
            2.0,
            2.3,
        ),
        (
            221,
            format!(
                "{attention}:151\npy RotaryEmbedding.forward_cuda @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/rotary_embedding/base.py:148\npy rotary_embedding @ {ops}:301\nnat rotary_embedding @ _C.abi3.so\napi cuLaunchKernel"
            ),
            ROPE,
            1.0,
            2.6,
        ),
        (
            221,
            format!(
                "{flash}\npy reshape_and_cache_flash @ {ops}:1905\nnat reshape_and_cache_flash @ _C.abi3.so\napi cuLaunchKernel"
            ),
            CACHE,
            1.0,
            2.9,
        ),
        (
            221,
            format!(
                "{flash}\npy flash_attn_varlen_func @ /opt/venv/lib/python3.12/site-packages/vllm/vllm_flash_attn/flash_attn_interface.py:233\nnat mha_fwd @ _vllm_fa3_C.abi3.so\nnat run_mha_fwd | void run_mha_fwd_<90, cutlass::bfloat16_t, 128, 128, true, true, false, true>(Flash_fwd_params&, CUstream_st*) @ _vllm_fa3_C.abi3.so\napi cuLaunchKernelEx"
            ),
            FLASH,
            1.0,
            31.8,
        ),
        (
            221,
            format!(
                "{flash}\npy flash_attn_varlen_func @ /opt/venv/lib/python3.12/site-packages/vllm/vllm_flash_attn/flash_attn_interface.py:233\nnat mha_fwd @ _vllm_fa3_C.abi3.so\napi cuLaunchKernel"
            ),
            COMBINE,
            1.0,
            4.2,
        ),
        (
            221,
            format!(
                "{attention}:153\npy RowParallelLinear.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/linear.py:1402{LINEAR}\napi cuLaunchKernelEx"
            ),
            GEMM_OUT,
            1.0,
            13.2,
        ),
        (226, norm, NORM, 1.0, 3.1),
        (
            227,
            format!(
                "{mlp}:107\npy MergedColumnParallelLinear.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/linear.py:565{LINEAR}\napi cuLaunchKernelEx"
            ),
            GEMM_UP,
            1.0,
            51.5,
        ),
        (
            227,
            format!(
                "{mlp}:108\npy SiluAndMul.forward_cuda @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/activation.py:89\nnat silu_and_mul @ _C.abi3.so\napi cuLaunchKernel"
            ),
            SILU,
            1.0,
            3.4,
        ),
        (
            227,
            format!(
                "{mlp}:109\npy RowParallelLinear.forward @ /opt/venv/lib/python3.12/site-packages/vllm/model_executor/layers/linear.py:1402{LINEAR}\napi cuLaunchKernelEx"
            ),
            GEMM_DOWN,
            1.0,
            27.9,
        ),
    ]
}

const NORM: &str = "kern fused_add_rms_norm_kernel<bfloat16, 8> | void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16*, c10::BFloat16 const*, float, int, int)";
const QK_NORM: &str = "kern rms_norm_kernel<bfloat16> | void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, long, c10::BFloat16 const*, float, int, int)";
const ROPE: &str = "kern rotary_embedding_kernel<bfloat16, true> | void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, int, long, long, long, int, int, int)";
const CACHE: &str = "kern reshape_and_cache_flash_kernel<bfloat16> | void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, __nv_bfloat16*, long const*, long, long, long, long, long, int, int, int, float const*, float const*)";
const FLASH: &str = "kern FlashAttnFwdSm90<128x128, paged, split> | void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1>>, cute::tuple<cute::C<128>, cute::C<128>, cute::C<128>>, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90, true, false, false, true, true, false, false, true, true, true, false, true>, flash::CollectiveEpilogueFwd<cute::tuple<cute::C<128>, cute::C<128>, cute::C<128>>, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1>>, float, cutlass::arch::Sm90, 256, true, true, true, false>, flash::VarlenDynamicPersistentTileScheduler<128, 256, 128, true, true, true>>>>(flash::FlashAttnFwdSm90::Params)";
const COMBINE: &str = "kern FlashAttnFwdCombine<64x128> | void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<64>, cute::C<128>>, 5, 256, 1, true, true, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>(flash::FlashAttnFwdCombine::Params)";
const GEMM_QKV: &str = "kern nvjet_tst_64x8_64x16_4x1_v_bz_TNT";
const GEMM_OUT: &str = "kern nvjet_tst_64x8_64x16_1x4_h_bz_splitK_TNT";
const GEMM_UP: &str = "kern nvjet_tst_128x64_64x8_2x1_v_bz_TNT";
const GEMM_DOWN: &str = "kern nvjet_tst_64x64_64x13_4x1_v_bz_splitK_TNT";
const SILU: &str = "kern act_and_mul_kernel<bfloat16, silu> | void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::BFloat16 const&)), true>(c10::BFloat16*, c10::BFloat16 const*, int)";

/// An engine that decodes with graphs, prefills without, and samples.
fn decode() -> Profile {
    let mut builder = Builder::default();
    for (batch, steps) in [("64", 5_200.0), ("32", 1_450.0), ("8", 380.0)] {
        let scale = match batch {
            "64" => 1.0,
            "32" => 0.82,
            _ => 0.71,
        };
        let launch = builder.stack(&format!(
            "{ENGINE}\npy GPUModelRunner._model_forward @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:2581{REPLAY}"
        ));
        builder.count(&launch, steps);
        let graph = builder.line(&format!("graph graph of 541 nodes, batch {batch}"));
        let launch = [launch, vec![graph]].concat();
        for (line, frames, kernel, runs, mean_us) in layer_work() {
            let capture = builder.stack(&format!("{CAPTURE}{LAYER}\n{DECODER}:{line}\n{frames}"));
            let kernel = builder.line(kernel);
            builder.add(&launch, &capture, kernel, steps * 36.0 * runs, mean_us * scale);
        }
    }
    prefill(&mut builder);
    sampling(&mut builder);
    builder.finish()
}

/// Prefill runs the same layers without a graph, so both views are the same.
fn prefill(builder: &mut Builder) {
    let steps = 210.0;
    for (line, frames, kernel, runs, mean_us) in layer_work() {
        let stack = builder.stack(&format!(
            "{ENGINE}\npy GPUModelRunner._model_forward @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:2581{LAYER}\n{DECODER}:{line}\n{frames}"
        ));
        let kernel = builder
            .line(&kernel.replace("64x8_64x16", "192x208_64x4").replace("64x64_64x13", "256x128_64x4"));
        builder.add(&stack, &stack, kernel, steps * 36.0 * runs, mean_us * 4.6);
        builder.count(&stack, steps * 36.0 * runs);
    }
}

/// Sampling and the copies around a step are launched one by one.
fn sampling(builder: &mut Builder) {
    let sampler = "py GPUModelRunner._sample @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:2466\npy Sampler.forward @ /opt/venv/lib/python3.12/site-packages/vllm/v1/sample/sampler.py:91";
    let prepare = "py GPUModelRunner._prepare_inputs @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:1204";
    let work = [
        (
            format!(
                "py GPUModelRunner.compute_logits @ /opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py:3077{LINEAR}\napi cuLaunchKernelEx"
            ),
            "kern nvjet_tst_128x64_64x8_2x1_v_bz_TNT",
            1.0,
            402.0,
        ),
        (
            format!(
                "{sampler}\npy TopKTopPSampler.forward_cuda @ /opt/venv/lib/python3.12/site-packages/vllm/v1/sample/ops/topk_topp_sampler.py:152\nnat at::native::sort_cuda_kernel @ libtorch_cuda.so\nnat cudaLaunchKernel @ libcudart.so.13\napi cuLaunchKernel"
            ),
            "kern DeviceSegmentedRadixSortKernel<float, long> | void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<float, long, int>::Policy900, false, false, float, long>()",
            4.0,
            38.5,
        ),
        (
            format!(
                "{sampler}\npy TopKTopPSampler.forward_cuda @ /opt/venv/lib/python3.12/site-packages/vllm/v1/sample/ops/topk_topp_sampler.py:157\nnat at::native::softmax_cuda_out @ libtorch_cuda.so\nnat cudaLaunchKernel @ libcudart.so.13\napi cuLaunchKernel"
            ),
            "kern cunn_SoftMaxForward<4, float> | void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)",
            1.0,
            55.0,
        ),
        (
            format!(
                "{sampler}\npy random_sample @ /opt/venv/lib/python3.12/site-packages/vllm/v1/sample/ops/topk_topp_sampler.py:271\nnat at::native::exponential_kernel @ libtorch_cuda.so\nnat cudaLaunchKernel @ libcudart.so.13\napi cuLaunchKernel"
            ),
            "kern distribution_elementwise_grid_stride_kernel<float, 4> | void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, exponential>(long, at::PhiloxCudaState)",
            1.0,
            21.7,
        ),
        (
            format!(
                "{prepare}\nnat at::native::copy_kernel_cuda @ libtorch_cuda.so\nnat cudaMemcpyAsync @ libcudart.so.13\napi cuMemcpyHtoDAsync_v2"
            ),
            "kern copy host to device",
            6.0,
            1.7,
        ),
    ];
    for (frames, kernel, runs, mean_us) in work {
        let stack = builder.stack(&format!("{ENGINE}\n{frames}"));
        let kernel = builder.line(kernel);
        builder.add(&stack, &stack, kernel, 7_240.0 * runs, mean_us);
        builder.count(&stack, 7_240.0 * runs);
    }
}

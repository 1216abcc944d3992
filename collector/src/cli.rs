//! What was typed.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

const ROOT_EXAMPLES: &str = "\
Examples:
  launchscope run -- python3 serve.py            profile one command, write the profile when it ends
  launchscope run -o prof -- vllm serve MODEL    with all its child processes
  launchscope collect --socket /run/ls/ls.sock   beside many engines, a profile a minute
  launchscope env --kubernetes                   what to add to a pod so that it finds the collector";

const RUN_EXAMPLES: &str = "\
Examples:
  launchscope run -- python3 bench.py
  launchscope run -o /tmp/prof --format pprof,html -- vllm serve Qwen/Qwen3-0.6B
  launchscope run --door injection -- python3 -m sglang.launch_server --enable-memory-saver ...
  launchscope run --cupti resident --json -- ./my_cuda_program > result.txt

The command's output, exit code and signals pass through untouched; what launchscope itself says goes to stderr.
If the command is killed by a signal, launchscope ends by the same signal after writing the profile (a shell shows
128 + its number). Exit codes of launchscope's own: 125 it failed, 126 COMMAND cannot be executed, 127 COMMAND not found.
^C reaches the command directly; the profile is written when the command has ended.";

const COLLECT_EXAMPLES: &str = "\
Examples:
  launchscope collect                                              sidecar of the same pod (abstract socket @launchscope)
  launchscope collect --socket /run/launchscope/launchscope.sock   daemon of a node (path on a shared volume)
  launchscope collect --merge --interval 5m --duration 1h -o /var/lib/launchscope

Each engine process must be started with the variables that `launchscope env` prints.
SIGTERM or SIGINT writes what is there and ends; SIGUSR1 writes what is there and goes on. Set LAUNCHSCOPE_TOKEN on
both sides to keep strangers out.";

const ENV_EXAMPLES: &str = "\
Examples:
  eval \"$(launchscope env)\" && python3 serve.py
  docker run $(launchscope env --docker --socket /run/launchscope/launchscope.sock) my-image
  launchscope env --kubernetes --socket /run/launchscope/launchscope.sock >> pod.yaml";

/// An always-on GPU profiler for inference engines.
#[derive(Debug, Parser)]
#[command(name = "launchscope", version, after_help = ROOT_EXAMPLES, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command and write a profile of it and all its children
    Run(RunArgs),
    /// Collect from many processes until stopped; a profile of each, every interval
    Collect(CollectArgs),
    /// Print the variables with which a process finds the collector
    Env(EnvArgs),
}

/// Which way the library gets into the engine process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// CUDA_INJECTION64_PATH and LD_PRELOAD: one of them survives in every known engine
    Both,
    /// CUDA_INJECTION64_PATH only
    Injection,
    /// LD_PRELOAD only
    Preload,
}

/// When CUPTI is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cupti {
    /// In short windows at random times: full speed between them
    Window,
    /// All the time: every kernel is recorded, graph replays run 9 to 30 % slower
    Resident,
    /// Never: launches and stacks only, no GPU times
    Off,
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// pprof, gzipped
    Pprof,
    /// Collapsed stacks
    Collapsed,
    /// speedscope
    Speedscope,
    /// One page to open in a browser
    Html,
    /// Everything, for scripts
    Json,
}

/// Where profiles go and in which formats.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Directory for the files [default: launchscope-COMMAND-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Formats to write
    #[arg(long, value_enum, value_delimiter = ',', default_value = "html,pprof,speedscope,collapsed,json")]
    pub format: Vec<FormatName>,
    /// Title of the profile [default: the command]
    #[arg(long)]
    pub title: Option<String>,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// `launchscope run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Files.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which way the library gets in
    #[arg(long, value_enum, default_value = "both")]
    pub door: Door,
    /// The same as --door injection
    #[arg(long, conflicts_with_all = ["door", "no_injection"])]
    pub no_preload: bool,
    /// The same as --door preload
    #[arg(long, conflicts_with = "door")]
    pub no_injection: bool,
    /// When CUPTI is attached [default: LAUNCHSCOPE_CUPTI, otherwise window]
    #[arg(long, value_enum)]
    pub cupti: Option<Cupti>,
    /// Print a summary in JSON on stdout, after the command's own output
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `launchscope collect`.
#[derive(Debug, Args)]
#[command(after_help = COLLECT_EXAMPLES)]
pub struct CollectArgs {
    /// Files.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Socket to listen on: @name (abstract, same network namespace) or a path (default: @launchscope)
    #[arg(long, env = "LAUNCHSCOPE_SOCKET", value_name = "SOCKET")]
    pub socket: Option<String>,
    /// How often profiles are written (30s, 5m, 1h)
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub interval: String,
    /// When to stop by itself [default: never]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Remove the oldest profiles of this run when there are more than this [default: keep all]
    #[arg(long, value_name = "COUNT")]
    pub keep: Option<usize>,
    /// One profile of all processes instead of one each
    #[arg(long)]
    pub merge: bool,
}

/// `launchscope env`.
#[derive(Debug, Args)]
#[command(after_help = ENV_EXAMPLES)]
pub struct EnvArgs {
    /// Lines for a shell (the default)
    #[arg(long, group = "style")]
    pub shell: bool,
    /// Options for `docker run`
    #[arg(long, group = "style")]
    pub docker: bool,
    /// A fragment of a Kubernetes pod
    #[arg(long, group = "style")]
    pub kubernetes: bool,
    /// Socket of the collector: @name or a path (default: @launchscope)
    #[arg(long, value_name = "SOCKET")]
    pub socket: Option<String>,
    /// Which way the library gets in
    #[arg(long, value_enum, default_value = "both")]
    pub door: Door,
    /// Path of liblaunchscope.so as the engine process sees it [default: where it is found here]
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// When CUPTI is attached
    #[arg(long, value_enum)]
    pub cupti: Option<Cupti>,
}

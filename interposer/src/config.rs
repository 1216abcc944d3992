//! Over 400 lines because the table of settings and its reader belong in one place.
//!
//! Settings: one table of environment variables, read once before any hook is live.
//!
//! Each setting has a LAUNCHSCOPE_ name and the documented names of the reference product as aliases with the same
//! meaning and default. The README's table is generated from [`SETTINGS`] (`scripts/settings-table.sh`, checked in CI).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// One documented setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name without the LAUNCHSCOPE_ prefix.
    pub name: &'static str,
    /// Full names with the same meaning.
    pub aliases: &'static [&'static str],
    /// Default, as one would write it.
    pub default: &'static str,
    /// What it does, for the README.
    pub meaning: &'static str,
}

const fn setting(
    name: &'static str,
    aliases: &'static [&'static str],
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { name, aliases, default, meaning }
}

/// Prefix of our own names.
pub const PREFIX: &str = "LAUNCHSCOPE_";
/// Prefixes whose names are accepted where an alias says so, and reported where none does.
pub const ALIAS_PREFIXES: [&str; 2] = ["ZYMTRACE_CUDAPROFILER__", "ZYMTRACE_ROCMPROFILER__"];

/// All settings that the library or the collector reads.
pub const SETTINGS: &[Setting] = &[
    setting("ENABLED", &[], "true", "`false`: the library is loaded and does nothing"),
    setting(
        "GRAPH_SAMPLING_ENABLED",
        &["ZYMTRACE_CUDAPROFILER__GRAPH_SAMPLING__ENABLED"],
        "true",
        "`false`: every graph launch is profiled; CUPTI stays attached, which slows graph replay by 9 to 30 %",
    ),
    setting(
        "GRAPH_SAMPLING_TARGET",
        &["ZYMTRACE_CUDAPROFILER__GRAPH_SAMPLING__TARGET"],
        "20",
        "graph launches sampled per second and OS thread",
    ),
    setting(
        "STACK_TRACE_SAMPLING_ENABLED",
        &[
            "ZYMTRACE_CUDAPROFILER__STACK_TRACE_SAMPLING__ENABLED",
            "ZYMTRACE_ROCMPROFILER__STACK_TRACE_SAMPLING__ENABLED",
        ],
        "true",
        "`false`: every kernel launch is profiled; CUPTI stays attached",
    ),
    setting(
        "STACK_TRACE_SAMPLING_TARGET",
        &[
            "ZYMTRACE_CUDAPROFILER__STACK_TRACE_SAMPLING__TARGET",
            "ZYMTRACE_ROCMPROFILER__STACK_TRACE_SAMPLING__TARGET",
        ],
        "200",
        "kernel launches, and as many copies, sampled per sampling window and OS thread",
    ),
    setting(
        "STACK_TRACE_SAMPLING_WINDOW_SIZE",
        &[
            "ZYMTRACE_CUDAPROFILER__STACK_TRACE_SAMPLING__WINDOW_SIZE",
            "ZYMTRACE_ROCMPROFILER__STACK_TRACE_SAMPLING__WINDOW_SIZE",
        ],
        "1s",
        "length of the sampling window that the target refers to",
    ),
    setting(
        "CUPTI",
        &[],
        "window",
        "`window`: CUPTI visits for short random windows; `resident`: it stays attached; `off`: launches and stacks only",
    ),
    setting("CUPTI_LIBRARY", &[], "(searched)", "path of the libcupti to use"),
    setting("WINDOW_LENGTH", &[], "50ms", "how long a CUPTI window records"),
    setting(
        "WINDOW_PERIOD",
        &[],
        "10s",
        "mean time between the starts of CUPTI windows; each gap is drawn at random",
    ),
    setting(
        "GATE_MAX",
        &[],
        "20ms",
        "how long launches may be held while CUPTI waits for the GPU to become idle",
    ),
    setting(
        "QUIET",
        &["ZYMTRACE_CUDAPROFILER__QUIET", "ZYMTRACE_ROCMPROFILER__QUIET"],
        "true",
        "`false`: messages on stderr, as RUST_LOG allows (`RUST_LOG=launchscope=info`)",
    ),
    setting(
        "PRINT_STATS",
        &["ZYMTRACE_CUDAPROFILER__PRINT_STATS"],
        "false",
        "`true`, with QUIET=false: the counters on stderr every 10 s",
    ),
    setting(
        "SOCKET",
        &[],
        "@launchscope",
        "unix socket of the collector; a leading `@` means the abstract namespace",
    ),
    setting("TOKEN", &[], "(none)", "shown to the collector, which can ask for it"),
    setting("LIBRARY", &[], "(searched)", "read by `launchscope run` and `env`: path of liblaunchscope.so"),
    setting(
        "ENABLE_NVTX",
        &["ZYMTRACE_CUDAPROFILER__ENABLE_NVTX"],
        "true",
        "accepted; NVTX ranges are not read yet",
    ),
    setting(
        "COLLECT_PER_GPU",
        &["ZYMTRACE_CUDAPROFILER__COLLECT_PER_GPU"],
        "true",
        "accepted; profiles always keep the device of each kernel",
    ),
    setting(
        "ENABLE_PC_SAMPLING",
        &["ZYMTRACE_CUDAPROFILER__ENABLE_PC_SAMPLING"],
        "false",
        "accepted; PC sampling is not built yet, and `true` is reported",
    ),
];

/// How CUPTI is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuptiMode {
    /// Short random windows.
    Window,
    /// Attached for good.
    Resident,
    /// Never.
    Off,
}

/// What the settings mean.
#[derive(Clone, Debug)]
pub struct Config {
    /// The library does its work.
    pub enabled: bool,
    /// Graph launches sampled per second and thread; `None` means all.
    pub graph_target_per_s: Option<f64>,
    /// Kernel launches sampled per sampling window and thread; `None` means all.
    pub kernel_target: Option<f64>,
    /// The sampling window.
    pub sampling_window: Duration,
    /// How CUPTI is used; `Resident` also where a sampler is disabled.
    pub cupti: CuptiMode,
    /// Configured path of libcupti.
    pub cupti_library: Option<PathBuf>,
    /// How long a window records.
    pub window_length: Duration,
    /// Mean time between the starts of windows.
    pub window_period: Duration,
    /// How long the gate may wait for the GPU.
    pub gate_max: Duration,
    /// Nothing on stderr.
    pub quiet: bool,
    /// Counters on stderr.
    pub print_stats: bool,
    /// Socket of the collector.
    pub socket: OsString,
    /// Shown to the collector.
    pub token: [u8; 64],
    /// Most detailed level that RUST_LOG allows for us.
    pub log_level: LogLevel,
    /// What could not be understood, in words.
    pub complaints: Vec<Complaint>,
}

/// Something in the environment that we could not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// A value that does not parse.
    BadValue(String),
    /// A name with one of our prefixes that nothing reads.
    UnknownName(String),
}

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What stops us from working.
    Error,
    /// What makes the profile worse.
    Warn,
    /// Status changes.
    Info,
    /// Every window.
    Debug,
}

impl Config {
    /// Reads a set of variables, normally the environment.
    pub fn from_variables(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let variables: Vec<_> = variables.into_iter().collect();
        let mut reader = Reader { variables: &variables, complaints: Vec::new() };
        let graph_all = !reader.flag("GRAPH_SAMPLING_ENABLED", true);
        let kernels_all = !reader.flag("STACK_TRACE_SAMPLING_ENABLED", true);
        let graph_target = reader.number("GRAPH_SAMPLING_TARGET", 20.0);
        let kernel_target = reader.number("STACK_TRACE_SAMPLING_TARGET", 200.0);
        let cupti = match reader.text("CUPTI").unwrap_or_default().as_str() {
            "off" => CuptiMode::Off,
            "resident" => CuptiMode::Resident,
            "" | "window" if graph_all || kernels_all => CuptiMode::Resident,
            "" | "window" => CuptiMode::Window,
            other => {
                reader.bad("CUPTI", other, "window, resident or off");
                CuptiMode::Window
            }
        };
        if reader.flag("ENABLE_PC_SAMPLING", false) {
            reader
                .complaints
                .push(Complaint::BadValue("ENABLE_PC_SAMPLING=true: PC sampling is not built yet".into()));
        }
        let mut config = Self {
            enabled: reader.flag("ENABLED", true),
            graph_target_per_s: (!graph_all).then_some(graph_target),
            kernel_target: (!kernels_all).then_some(kernel_target),
            sampling_window: reader.duration("STACK_TRACE_SAMPLING_WINDOW_SIZE", Duration::from_secs(1)),
            cupti,
            cupti_library: reader.raw("CUPTI_LIBRARY").map(PathBuf::from),
            window_length: reader.duration("WINDOW_LENGTH", Duration::from_millis(50)),
            window_period: reader.duration("WINDOW_PERIOD", Duration::from_secs(10)),
            gate_max: reader.duration("GATE_MAX", Duration::from_millis(20)),
            quiet: reader.flag("QUIET", true),
            print_stats: reader.flag("PRINT_STATS", false),
            socket: reader.raw("SOCKET").unwrap_or_else(|| shared_abi::handover::DEFAULT_SOCKET.into()),
            token: token(reader.raw("TOKEN")),
            log_level: log_level(&variables),
            complaints: Vec::new(),
        };
        config.complaints = reader.complaints;
        config.complaints.extend(unknown_names(&variables));
        config
    }
}

struct Reader<'a> {
    variables: &'a [(OsString, OsString)],
    complaints: Vec<Complaint>,
}

impl Reader<'_> {
    /// Our own name wins over an alias.
    fn raw(&self, name: &str) -> Option<OsString> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
        let own = format!("{PREFIX}{name}");
        let names = core::iter::once(own.as_str()).chain(setting.aliases.iter().copied());
        names.into_iter().find_map(|name| {
            self.variables.iter().find(|(key, _)| key.as_os_str() == name).map(|(_, value)| value.clone())
        })
    }

    fn text(&self, name: &str) -> Option<String> {
        self.raw(name)
            .map(|value| value.to_string_lossy().trim().to_lowercase())
            .filter(|value| !value.is_empty())
    }

    fn bad(&mut self, name: &str, found: &str, wanted: &str) {
        self.complaints.push(Complaint::BadValue(format!("{PREFIX}{name}={found}: expected {wanted}")));
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.text(name).as_deref() {
            None => default,
            Some("true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            Some(other) => {
                self.bad(name, other, "true or false");
                default
            }
        }
    }

    fn number(&mut self, name: &str, default: f64) -> f64 {
        let Some(text) = self.text(name) else { return default };
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => value,
            _ => {
                self.bad(name, &text, "a number above zero");
                default
            }
        }
    }

    fn duration(&mut self, name: &str, default: Duration) -> Duration {
        let Some(text) = self.text(name) else { return default };
        parse_duration(&text).unwrap_or_else(|| {
            self.bad(name, &text, "a time above zero such as 50ms or 1s");
            default
        })
    }
}

/// `50ms`, `1s`, `1.5s`, `2m`, `100us`; a bare number means seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * scale;
    (seconds > 0.0 && seconds < 86_400.0).then(|| Duration::from_secs_f64(seconds))
}

fn token(value: Option<OsString>) -> [u8; 64] {
    let mut token = [0u8; 64];
    let value = value.unwrap_or_default();
    for (to, from) in token.iter_mut().zip(value.as_encoded_bytes()) {
        *to = *from;
    }
    token
}

/// The level for the target `launchscope` in RUST_LOG (also under the reference product's target names).
fn log_level(variables: &[(OsString, OsString)]) -> LogLevel {
    let Some((_, value)) = variables.iter().find(|(key, _)| key == "RUST_LOG") else {
        return LogLevel::Error;
    };
    let value = value.to_string_lossy().to_lowercase();
    let mut level = LogLevel::Error;
    for directive in value.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        let (target, word) = directive.split_once('=').unwrap_or(match parse_level(directive) {
            Some(_) => ("", directive),
            None => (directive, "debug"),
        });
        let ours = matches!(target, "" | "launchscope" | "zymtracecudaprofiler" | "zymtracerocmprofiler");
        if let (true, Some(parsed)) = (ours, parse_level(word)) {
            level = parsed;
        }
    }
    level
}

fn parse_level(word: &str) -> Option<LogLevel> {
    Some(match word {
        "off" => LogLevel::Off,
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" | "trace" => LogLevel::Debug,
        _ => return None,
    })
}

fn unknown_names(variables: &[(OsString, OsString)]) -> Vec<Complaint> {
    let known = |name: &str| match name.strip_prefix(PREFIX) {
        Some(own) => SETTINGS.iter().any(|setting| setting.name == own),
        None => SETTINGS.iter().any(|setting| setting.aliases.contains(&name)),
    };
    let ours =
        |name: &str| name.starts_with(PREFIX) || ALIAS_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    variables
        .iter()
        .map(|(key, _)| key.to_string_lossy().into_owned())
        .filter(|name| ours(name) && !known(name))
        .map(Complaint::UnknownName)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Config {
        Config::from_variables(pairs.iter().map(|(key, value)| (OsString::from(key), OsString::from(value))))
    }

    /// With nothing set, the documented defaults hold and nothing is complained about.
    #[test]
    fn empty_environment_gives_documented_defaults() {
        let config = config(&[]);
        assert!(config.enabled && config.quiet && !config.print_stats);
        assert_eq!(config.graph_target_per_s, Some(20.0));
        assert_eq!(config.kernel_target, Some(200.0));
        assert_eq!(config.cupti, CuptiMode::Window);
        assert_eq!(config.socket, "@launchscope");
        assert_eq!(config.complaints, []);
    }

    /// A deployment written for the reference product works unchanged.
    #[test]
    fn documented_aliases_mean_the_same() {
        let config = config(&[
            ("ZYMTRACE_CUDAPROFILER__GRAPH_SAMPLING__TARGET", "5"),
            ("ZYMTRACE_CUDAPROFILER__STACK_TRACE_SAMPLING__WINDOW_SIZE", "250ms"),
            ("ZYMTRACE_CUDAPROFILER__QUIET", "false"),
            ("RUST_LOG", "warn,zymtracecudaprofiler=info"),
        ]);
        assert_eq!(config.graph_target_per_s, Some(5.0));
        assert_eq!(config.sampling_window, Duration::from_millis(250));
        assert!(!config.quiet);
        assert_eq!(config.log_level, LogLevel::Info);
        assert_eq!(config.complaints, []);
    }

    /// Our own name wins where both are set.
    #[test]
    fn own_name_wins_over_alias() {
        let config = config(&[("ZYMTRACE_CUDAPROFILER__QUIET", "true"), ("LAUNCHSCOPE_QUIET", "false")]);
        assert!(!config.quiet);
    }

    /// Profiling every graph launch needs CUPTI for good.
    #[test]
    fn disabled_graph_sampling_makes_cupti_resident() {
        let config = config(&[("LAUNCHSCOPE_GRAPH_SAMPLING_ENABLED", "false")]);
        assert_eq!(config.cupti, CuptiMode::Resident);
        assert_eq!(config.graph_target_per_s, None);
    }

    /// A value that does not parse keeps the default and is named.
    #[test]
    fn bad_value_keeps_default_and_is_named() {
        let config = config(&[("LAUNCHSCOPE_WINDOW_LENGTH", "soon")]);
        assert_eq!(config.window_length, Duration::from_millis(50));
        assert!(matches!(config.complaints.as_slice(), [Complaint::BadValue(text)] if text.contains("soon")));
    }

    /// Names with our prefixes that nothing reads are named, others are not.
    #[test]
    fn unknown_names_are_reported() {
        let config =
            config(&[("LAUNCHSCOPE_GRAPH_TARGET", "3"), ("ZYMTRACE_CUDAPROFILER__X", "1"), ("PATH", "/bin")]);
        assert_eq!(
            config.complaints,
            [
                Complaint::UnknownName("LAUNCHSCOPE_GRAPH_TARGET".into()),
                Complaint::UnknownName("ZYMTRACE_CUDAPROFILER__X".into())
            ]
        );
    }
}

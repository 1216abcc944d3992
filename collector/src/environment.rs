//! `launchscope env`: how a process finds the collector, in the words of a shell, of docker and of Kubernetes.

use crate::cli::Door;
use crate::config::{EnvConfig, EnvStyle};
use crate::run::child::cupti_value;
use std::path::Path;

/// The text to print.
pub fn text(config: &EnvConfig) -> String {
    match config.style {
        EnvStyle::Shell => shell(config),
        EnvStyle::Docker => docker(config),
        EnvStyle::Kubernetes => kubernetes(config),
    }
}

struct Variable {
    name: &'static str,
    value: String,
}

fn variables(config: &EnvConfig) -> Vec<Variable> {
    let library = config.library.to_string_lossy().into_owned();
    let mut variables = Vec::new();
    if config.door != Door::Preload {
        variables.push(Variable { name: "CUDA_INJECTION64_PATH", value: library.clone() });
    }
    if config.door != Door::Injection {
        variables.push(Variable { name: "LD_PRELOAD", value: library });
    }
    variables.push(Variable { name: "LAUNCHSCOPE_SOCKET", value: config.socket.clone() });
    if let Some(token) = &config.token {
        variables.push(Variable { name: "LAUNCHSCOPE_TOKEN", value: token.clone() });
    }
    if let Some(cupti) = config.cupti {
        variables.push(Variable { name: "LAUNCHSCOPE_CUPTI", value: cupti_value(cupti).to_owned() });
    }
    variables
}

fn shell(config: &EnvConfig) -> String {
    let line = |variable: Variable| match variable.name {
        // What is there already stays, in front.
        "LD_PRELOAD" => {
            format!("export LD_PRELOAD=\"${{LD_PRELOAD:+$LD_PRELOAD:}}\"{}\n", shell_quoted(&variable.value))
        }
        name => format!("export {name}={}\n", shell_quoted(&variable.value)),
    };
    variables(config).into_iter().map(line).collect()
}

/// Words for `docker run`, to be split by a shell: paths with blanks do not work here.
fn docker(config: &EnvConfig) -> String {
    let mut words: Vec<String> =
        variables(config).iter().map(|variable| format!("-e {}={}", variable.name, variable.value)).collect();
    let library = config.library.to_string_lossy();
    words.push(format!("-v {library}:{library}:ro"));
    match socket_directory(&config.socket) {
        Some(directory) => words.push(format!("-v {directory}:{directory}")),
        // An abstract socket is seen in the network namespace of its collector only.
        None => words.push("--network host".to_owned()),
    }
    words.join(" ") + "\n"
}

fn kubernetes(config: &EnvConfig) -> String {
    let mut text = String::from(
        "# Into the engine's container. The library comes from the volume `launchscope-library`: fill it with an init\n\
         # container that copies liblaunchscope.so, or use the hostPath that a DaemonSet fills.\n\
         env:\n",
    );
    for variable in variables(config) {
        text.push_str(&format!("  - name: {}\n    value: {}\n", variable.name, yaml_quoted(&variable.value)));
    }
    let library =
        config.library.parent().unwrap_or(Path::new("/opt/launchscope/lib")).to_string_lossy().into_owned();
    let library = yaml_quoted(&library);
    text.push_str(&format!(
        "volumeMounts:\n  - name: launchscope-library\n    mountPath: {library}\n    readOnly: true\n"
    ));
    let socket = socket_directory(&config.socket).map(yaml_quoted);
    if let Some(directory) = &socket {
        text.push_str(&format!("  - name: launchscope-socket\n    mountPath: {directory}\n"));
    }
    text.push_str("# Into the pod's spec\nvolumes:\n  - name: launchscope-library\n    emptyDir: {}\n");
    match &socket {
        Some(directory) => text.push_str(&format!(
            "  - name: launchscope-socket\n    # A collector on the node (DaemonSet). For a sidecar of this pod use `emptyDir: {{}}`.\n    \
             hostPath:\n      path: {directory}\n      type: DirectoryOrCreate\n"
        )),
        None => text.push_str(
            "# The collector is a container of the same pod: `launchscope collect` (the abstract socket is shared by the\n\
             # pod's network namespace, no volume is needed for it).\n",
        ),
    }
    text
}

fn socket_directory(socket: &str) -> Option<&str> {
    let path = (!socket.starts_with('@')).then_some(socket)?;
    path.rsplit_once('/').map(|(directory, _)| if directory.is_empty() { "/" } else { directory })
}

fn shell_quoted(value: &str) -> String {
    let is_plain =
        value.chars().all(|character| character.is_ascii_alphanumeric() || "/@._-:+".contains(character));
    if is_plain { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

fn yaml_quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', r"\\").replace('"', "\\\""))
}

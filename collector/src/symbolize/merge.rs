//! Python frames in place of the interpreter's.
//!
//! One run of the evaluation loop (`_PyEval_EvalFrameDefault`) executes Python frames from its entry frame inwards, as
//! long as Python calls Python. So each native frame of the loop stands for the Python frames up to and including the
//! next entry frame. Counted in 54 of 54 cases on CPython 3.8 to 3.13 both numbers are equal. Where they are not
//! (a tail-call interpreter, a stack that was cut), the stacks are aligned at the end that is whole.

use crate::model::Frame;

/// What a native frame is to the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeKind {
    /// The evaluation loop.
    Eval,
    /// The interpreter around it, and what it calls C functions through.
    Interpreter,
    /// The C library's start of a thread or process; dropped at the outermost end.
    Start,
    /// liblaunchscope.
    Own,
    /// Anything else.
    Plain,
}

/// A symbolized native frame.
#[derive(Clone, Debug)]
pub struct NativeFrame {
    /// What it is to the merge.
    pub kind: NativeKind,
    /// As shown.
    pub frame: Frame,
}

/// A symbolized Python frame.
#[derive(Clone, Debug)]
pub struct PythonSegmentFrame {
    /// As shown.
    pub frame: Frame,
    /// The evaluation loop was entered for it.
    pub is_entry: bool,
}

/// Whether a stack ends before its outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// Both stacks are whole: they are aligned at the outermost frame.
    None,
    /// One of them lacks outermost frames: they are aligned at the innermost.
    Outermost,
}

/// What a frame with this symbol in an image with this file name is.
pub fn kind_of(symbol: Option<&str>, image: &str) -> NativeKind {
    let is_eval = symbol.is_some_and(|symbol| {
        let rest = symbol.strip_prefix("_PyEval_EvalFrameDefault");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    let is_python_binary = image.strip_prefix("python").is_some_and(|rest| {
        rest.chars().all(|character| character.is_ascii_digit() || ".dt-".contains(character))
    });
    if is_eval {
        NativeKind::Eval
    } else if image.starts_with("liblaunchscope") {
        NativeKind::Own
    } else if is_python_binary
        || ["libpython", "_ctypes.", "libffi.", "libffi-"].iter().any(|prefix| image.starts_with(prefix))
    {
        NativeKind::Interpreter
    } else if ["libc.so", "libc-", "libpthread", "ld-linux", "ld-musl"]
        .iter()
        .any(|prefix| image.starts_with(prefix))
    {
        NativeKind::Start
    } else {
        NativeKind::Plain
    }
}

/// Merges two stacks, both innermost first, into one, outermost first.
pub fn merge(
    native: Vec<NativeFrame>,
    python: Vec<PythonSegmentFrame>,
    truncation: Truncation,
) -> Vec<Frame> {
    if python.is_empty() {
        let shown = native.into_iter().rev().filter(|frame| frame.kind != NativeKind::Own);
        return shown.map(|frame| frame.frame).collect();
    }
    let evals = native.iter().filter(|frame| frame.kind == NativeKind::Eval).count();
    let mut segments = segments(python);
    let (mut skipped_evals, mut merged) = (0, Vec::new());
    if evals == 0 {
        merged.extend(segments.drain(..).flatten());
    } else if truncation == Truncation::Outermost {
        skipped_evals = evals.saturating_sub(segments.len());
        let extra = segments.len().saturating_sub(evals);
        merged.extend(segments.drain(..extra).flatten());
    }
    let mut segments = segments.into_iter();
    let mut evals_left = evals;
    // `_start` lies in the python binary, below the C library's own start.
    let is_start = |kind| matches!(kind, NativeKind::Start | NativeKind::Own | NativeKind::Interpreter);
    let outermost_first = native.into_iter().rev().skip_while(|frame| is_start(frame.kind));
    for frame in outermost_first {
        match frame.kind {
            NativeKind::Eval => {
                evals_left -= 1;
                if skipped_evals > 0 {
                    skipped_evals -= 1;
                } else if evals_left == 0 {
                    // The innermost loop takes whatever is left over.
                    merged.extend(segments.by_ref().flatten());
                } else {
                    merged.extend(segments.next().into_iter().flatten());
                }
            }
            NativeKind::Plain | NativeKind::Start => merged.push(frame.frame),
            NativeKind::Interpreter | NativeKind::Own => {}
        }
    }
    merged
}

/// Python frames by run of the loop, outermost first, as are the frames of each.
fn segments(python: Vec<PythonSegmentFrame>) -> Vec<Vec<Frame>> {
    let mut segments = Vec::new();
    let mut current = Vec::new();
    for frame in python {
        current.push(frame.frame);
        if frame.is_entry {
            segments.push(std::mem::take(&mut current));
        }
    }
    if !current.is_empty() {
        segments.push(current);
    }
    segments.iter_mut().for_each(|segment| segment.reverse());
    segments.reverse();
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Layer;

    fn frame(name: &str) -> Frame {
        let layer = Layer::Native;
        Frame { layer, name: name.to_owned(), full_name: String::new(), file: String::new(), line: 0 }
    }

    /// `e` eval, `i` interpreter, `o` own, `s` start, anything else plain; innermost first.
    fn native(text: &str) -> Vec<NativeFrame> {
        let kind = |name: &str| match name.chars().next() {
            Some('e') => NativeKind::Eval,
            Some('i') => NativeKind::Interpreter,
            Some('o') => NativeKind::Own,
            Some('s') => NativeKind::Start,
            _ => NativeKind::Plain,
        };
        text.split_whitespace().map(|name| NativeFrame { kind: kind(name), frame: frame(name) }).collect()
    }

    /// Names with `!` are entry frames; innermost first.
    fn python(text: &str) -> Vec<PythonSegmentFrame> {
        let one = |name: &str| PythonSegmentFrame {
            frame: frame(name.trim_end_matches('!')),
            is_entry: name.ends_with('!'),
        };
        text.split_whitespace().map(one).collect()
    }

    fn merged(native_text: &str, python_text: &str, truncation: Truncation) -> String {
        let frames = merge(native(native_text), python(python_text), truncation);
        frames.into_iter().map(|frame| frame.name).collect::<Vec<_>>().join(" ")
    }

    /// C code called from Python that calls Python again stands between the Python frames.
    #[test]
    fn each_loop_is_replaced_by_its_python_frames() {
        let native = "o1 cuda torch i1 e1 i2 sort i3 e2 i4 main_of_python s1";
        assert_eq!(
            merged(native, "forward call! lambda main!", Truncation::None),
            "main_of_python main lambda sort call forward torch cuda"
        );
    }

    /// Without a native loop the native part is innermost.
    #[test]
    fn native_frames_go_below_python_without_a_loop() {
        assert_eq!(merged("cuda torch i1", "f! main!", Truncation::None), "main f torch cuda");
        assert_eq!(merged("o1 cuda i1 main", "", Truncation::None), "main i1 cuda");
    }

    /// Different counts are aligned at the outermost frame, cut stacks at the innermost.
    #[test]
    fn unequal_counts_are_aligned_at_the_whole_end() {
        assert_eq!(merged("a e1 b", "x! y! z!", Truncation::None), "b z y x a");
        assert_eq!(merged("a e1 b e2 c e3", "x! y!", Truncation::None), "y c x b a");
        assert_eq!(merged("a e1 b", "x! y! z!", Truncation::Outermost), "z y b x a");
        assert_eq!(merged("a e1 b e2 c e3", "x! y!", Truncation::Outermost), "c y b x a");
    }

    /// The loop is known by its symbol, also where the compiler has split it; the rest by its file.
    #[test]
    fn frames_are_told_apart_by_symbol_and_file() {
        assert_eq!(kind_of(Some("_PyEval_EvalFrameDefault.cold"), "libpython3.11.so.1.0"), NativeKind::Eval);
        assert_eq!(kind_of(Some("_PyEval_EvalFrameDefault"), "python3.12"), NativeKind::Eval);
        assert_eq!(kind_of(Some("PyObject_Vectorcall"), "python3"), NativeKind::Interpreter);
        assert_eq!(kind_of(Some("f"), "python_extension.so"), NativeKind::Plain);
        assert_eq!(kind_of(None, "liblaunchscope.so"), NativeKind::Own);
    }
}

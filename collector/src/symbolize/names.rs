//! Names for people: demangled, and short forms of them. One demangler for all, since their texts differ.

use crate::model::Name;
use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite, Symbol};
use std::fmt::Write as _;

/// Mangled kernel names reach 4.5 KB.
const MAX_MANGLED_BYTES: usize = 16 << 10;
/// Demangled kernel names reach 6.7 KB; a hostile one could grow without end.
const MAX_DEMANGLED_BYTES: usize = 64 << 10;

/// Demangles and shortens a symbol or kernel name.
pub fn name_of(raw: &str) -> Name {
    if let Ok(name) = rustc_demangle::try_demangle(raw) {
        // `<T as Trait>::method`: in Rust the angle brackets are the name.
        return Name { short: format!("{name:#}"), full: String::new() };
    }
    let full = demangle(raw);
    let short = short_name(&full);
    let full = if short == full { String::new() } else { full };
    Name { short, full }
}

/// C++ and Rust names in plain words; anything else as it is.
pub fn demangle(raw: &str) -> String {
    if raw.len() > MAX_MANGLED_BYTES {
        return raw.to_owned();
    }
    if let Ok(name) = rustc_demangle::try_demangle(raw) {
        return format!("{name:#}");
    }
    if !raw.starts_with("_Z") && !raw.starts_with("__Z") {
        return raw.to_owned();
    }
    let mut text = Bounded(String::new());
    let demangled = Symbol::new(raw.as_bytes())
        .ok()
        .is_some_and(|symbol| symbol.structured_demangle(&mut text, &DemangleOptions::default()).is_ok());
    if demangled { text.0 } else { raw.to_owned() }
}

struct Bounded(String);

impl DemangleWrite for Bounded {
    fn push_demangle_node(&mut self, _: DemangleNodeType) {}
    fn write_string(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED_BYTES {
            return Err(std::fmt::Error);
        }
        self.0.write_str(text)
    }
}

/// A demangled name without template arguments, parameters, anonymous namespaces and return type.
pub fn short_name(full: &str) -> String {
    let named = full.replace("(anonymous namespace)::", "").replace("::(anonymous namespace)", "");
    let bare = without_template_arguments(&named);
    let without_parameters = &bare[..parameters_start(&bare)];
    let short = without_return_type(without_parameters.trim_end()).trim();
    if short.is_empty() || short.starts_with("::") { full.to_owned() } else { short.to_owned() }
}

fn without_template_arguments(name: &str) -> String {
    let mut bare = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if depth == 0
            && let Some(symbol) = operator_at(&bare, rest)
        {
            bare.push_str(symbol);
            rest = &rest[symbol.len()..];
            continue;
        }
        let is_arrow =
            next == '>' && rest.len() < name.len() && name[..name.len() - rest.len()].ends_with('-');
        match next {
            '<' => depth += 1,
            '>' if !is_arrow => depth = depth.saturating_sub(1),
            _ if depth == 0 => bare.push(next),
            _ => {}
        }
        rest = &rest[next.len_utf8()..];
    }
    bare
}

/// The symbol of an operator's name at the start of `rest`, if `bare` ends in the word.
fn operator_at(bare: &str, rest: &str) -> Option<&'static str> {
    let is_word = bare
        .strip_suffix("operator")
        .is_some_and(|before| !before.ends_with(|last: char| last.is_alphanumeric() || last == '_'));
    let symbols = ["<=>", "<<=", ">>=", "->*", "()", "<<", ">>", "<=", ">=", "->", "<", ">"];
    is_word.then(|| symbols.into_iter().find(|symbol| rest.starts_with(symbol))).flatten()
}

/// Where the parameter list of the function itself starts: the last top-level parenthesis that is not an operator's
/// name, outside of braces (lambdas).
fn parameters_start(bare: &str) -> usize {
    let mut braces = 0usize;
    for (at, character) in bare.char_indices() {
        match character {
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            '(' if braces == 0 && at > 0 && !bare[..at].ends_with("operator") => {
                let closes = closing(bare, at);
                // `f(int)::{lambda(int)#1}::operator()(int)`: the list belongs to an enclosing function.
                if !bare[closes..].starts_with(")::") {
                    return at;
                }
            }
            _ => {}
        }
    }
    bare.len()
}

fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, character) in text[open..].char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth <= 1 => return open + at,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

fn without_return_type(name: &str) -> &str {
    let (mut braces, mut parentheses) = (0usize, 0usize);
    let mut start = 0;
    for (at, character) in name.char_indices() {
        match character {
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            '(' => parentheses += 1,
            ')' => parentheses = parentheses.saturating_sub(1),
            ' ' if braces == 0 && parentheses == 0 => {
                if name[start..at].ends_with("operator") {
                    break; // `operator bool`, `operator new`
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::{demangle, short_name};

    /// What people look for in a kernel's name stays, everything else goes.
    #[test]
    fn short_name_keeps_only_the_path() {
        let cases = [
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, \
                 std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
                "at::native::vectorized_elementwise_kernel",
            ),
            ("void (anonymous namespace)::softmax_warp<float, (int)3>(float*, int)", "softmax_warp"),
            ("at::native::(anonymous namespace)::f(int)", "at::native::f"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"),
            ("a::B<c>::operator()(int) const", "a::B::operator()"),
            ("a::operator bool() const", "a::operator bool"),
            ("f(int)::{lambda(int)#1}::operator()(int) const", "f(int)::{lambda(int)#1}::operator()"),
            ("void", "void"),
            ("", ""),
        ];
        for (full, short) in cases {
            assert_eq!(short_name(full), short, "of {full}");
        }
    }

    /// Names of C, C++ and Rust come out in plain words.
    #[test]
    fn demangle_reads_three_languages() {
        assert_eq!(demangle("_ZN2at6native4fillEi"), "at::native::fill(int)");
        assert_eq!(demangle("cuLaunchKernel"), "cuLaunchKernel");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_str17h0123456789abcdefE"),
            "core::fmt::Write::write_str"
        );
        assert_eq!(demangle("_Znot really"), "_Znot really");
    }
}

//! Prints the README's table of settings from the table that the library reads. `scripts/settings-table.sh` puts it in place.

use interposer::config::{PREFIX, SETTINGS};

fn main() {
    println!("| setting | default | meaning | same as |\n| --- | --- | --- | --- |");
    for setting in SETTINGS {
        let aliases: Vec<String> = setting.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        println!(
            "| `{PREFIX}{}` | `{}` | {} | {} |",
            setting.name,
            setting.default,
            setting.meaning,
            aliases.join(", ")
        );
    }
}

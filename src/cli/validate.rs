//! `xds-health validate`.

use serde::Serialize;

use super::console::{Console, harmless};
use super::load::{self, Source};
use super::{BAD_CONFIG, FindingFormat, ValidateArgs};
use crate::config::{ConfigError, Warnings};
use crate::registry::Registry;
use crate::validate::Fault;

mod finding;
mod traps;

use finding::{Finding, Severity};

pub(super) fn validate(args: &ValidateArgs, console: &mut Console<'_>) -> u8 {
    let name = load::name(&args.config.config);
    let findings = match Source::read(&args.config.config) {
        Ok(source) => findings(&source, args),
        Err(error) => faults(&error, None),
    };
    let worst = findings.iter().map(|finding| finding.severity).min();
    let ok = match worst {
        Some(Severity::Error) => false,
        Some(Severity::Warning) => !args.strict,
        None => true,
    };
    tell(&name, ok, &findings, args, console);
    if ok { 0 } else { BAD_CONFIG }
}

/// All that is wrong with a file, and then what may not be meant: of a file that cannot be used, as much as its
/// reading told.
fn findings(source: &Source, args: &ValidateArgs) -> Vec<Finding> {
    let mut told = Warnings::default();
    let loaded = source.load_and_warn(&Registry::default(), &Default::default(), &mut told);
    let mut warnings: Vec<_> = told
        .located()
        .map(|(warning, place)| (warning.clone(), place))
        .collect();
    let mut findings = Vec::new();
    match &loaded {
        Ok(loaded) => {
            let place = |trap: &Fault| loaded.document.as_ref()?.locate(&trap.path);
            let traps = traps::traps(loaded, args.traffic);
            warnings.extend(traps.into_iter().map(|trap| {
                let place = place(&trap);
                (trap, place)
            }));
        }
        Err(error) => findings = faults(error, source.text()),
    }
    warnings.sort_by_key(|(_, place)| *place);
    let warning =
        |(fault, place): &(Fault, _)| Finding::new(Severity::Warning, fault, *place, source.text());
    findings.extend(warnings.iter().map(warning));
    findings
}

fn faults(error: &ConfigError, text: Option<&str>) -> Vec<Finding> {
    let finding = |(fault, place)| Finding::new(Severity::Error, fault, place, text);
    error.located().map(finding).collect()
}

/// What `--format json` gives.
#[derive(Serialize)]
struct Answer<'a> {
    file: &'a str,
    ok: bool,
    findings: &'a [Finding],
}

fn tell(
    name: &str,
    ok: bool,
    findings: &[Finding],
    args: &ValidateArgs,
    console: &mut Console<'_>,
) {
    match args.format {
        FindingFormat::Text => {
            for finding in findings {
                let text = finding.text(name, console.err.paint());
                console.err.say(format_args!("{text}"));
            }
        }
        FindingFormat::Json => {
            let answer = Answer {
                file: name,
                ok,
                findings,
            };
            // Text and numbers always have a form in JSON.
            let answer = serde_json::to_string(&answer).unwrap_or_default();
            console.out.say(format_args!("{answer}\n"));
            return;
        }
        FindingFormat::Github => {
            let commands = findings.iter().map(|finding| finding.github(name));
            let commands: String = commands.collect();
            console.out.say(format_args!("{commands}"));
        }
    }
    let warns = findings.iter().all(|f| f.severity == Severity::Warning);
    if ok {
        let name = harmless(name);
        console.out.say(format_args!("configuration '{name}' OK\n"));
    } else if warns {
        console.err.say(format_args!(
            "{}: refused by --strict: {} to warn of\n",
            harmless(name),
            match findings.len() {
                1 => "1 thing".to_owned(),
                several => format!("{several} things"),
            }
        ));
    }
}

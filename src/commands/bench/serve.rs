//! `k3plan bench serve`: a load on one server, and what it took.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use executor::load::secret::Secret;
use executor::load::target::Target;
use executor::load::tls::Trust;

use super::load_args::LoadArgs;
use super::measure::{Measurement, stop_on_signals};
use super::result::Measured;
use super::table;
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Send a load to an OpenAI-compatible server and measure its answers.
///
/// Traffic goes to the given URL only: no proxy is used, no redirect followed. Exit 1 when no request succeeds.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The server, as in http://127.0.0.1:8000.
    #[arg(long, visible_alias = "base-url")]
    url: String,
    /// Name of the model; the server's first when not given.
    #[arg(long)]
    model: Option<String>,
    /// Seed of prompts and arrivals.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A name for the result.
    #[arg(long)]
    label: Option<String>,
    /// Result file; also printed with `--json`.
    #[arg(long, visible_alias = "result-filename", value_name = "FILE")]
    output: Option<PathBuf>,
    /// File that each finished request is appended to at once; with `--output`, FILE.journal when not given.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Go on with the journal, if it exists.
    #[arg(long)]
    resume: bool,
    /// Leave the lists of single requests out of the result.
    #[arg(long)]
    no_detail: bool,
    /// Print the result as JSON, without the lists of single requests.
    #[arg(long)]
    json: bool,
    /// Facts to keep in the result.
    #[arg(long, num_args = 1.., value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// The server's log, to read its KV cache groups from.
    #[arg(long, value_name = "FILE")]
    server_log: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    load: LoadArgs,
}

/// How the server is reached.
#[derive(clap::Args)]
pub(super) struct Access {
    /// Environment variable that holds the API key; it must be set [default: OPENAI_API_KEY, where that is set].
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// File that holds the API key, instead of the variable.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// A further header, `NAME=VALUE`; keys do not belong here, where every process sees them.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Certificates to believe, PEM, instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Believe any certificate.
    #[arg(long, conflicts_with = "ca_file")]
    insecure: bool,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Never fails, since the parser of flags repeats what it refuses; `Access::headers` looks at it.
#[expect(clippy::unnecessary_wraps, reason = "the parser of flags wants a result")]
fn parse_header(text: &str) -> Result<(String, String), String> {
    Ok(parse_pair(text).unwrap_or_default())
}

impl Access {
    pub(super) fn secret(&self) -> Result<Option<Secret>, Failure> {
        let failed = |error| Failure::new("failed to read the API key").caused_by(error);
        if let Some(path) = &self.api_key_file {
            return Secret::from_file(path).map(Some).map_err(failed);
        }
        let name = self.api_key_env.as_deref().unwrap_or("OPENAI_API_KEY");
        // What is no name may be the key itself, given by mistake.
        let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let from =
            if name.bytes().all(fits) { format!("`${name}`") } else { "the variable named".to_owned() };
        let wrong = |what: &str| {
            Err(Failure::new("failed to read the API key")
                .caused_by(format!("{from} {what}"))
                .hint("`--api-key-env` takes the name of an environment variable, not the key"))
        };
        match std::env::var(name) {
            Ok(key) if key.is_empty() && self.api_key_env.is_none() => Ok(None),
            Ok(key) => Secret::new(&key, &from).map(Some).map_err(failed),
            Err(std::env::VarError::NotPresent) if self.api_key_env.is_none() => Ok(None),
            Err(std::env::VarError::NotPresent) => wrong("is not set"),
            Err(std::env::VarError::NotUnicode(_)) => wrong("is not UTF-8"),
        }
    }

    pub(super) fn trust(&self) -> Trust {
        match &self.ca_file {
            _ if self.insecure => Trust::Anybody,
            Some(path) => Trust::File(path.clone()),
            None => Trust::System,
        }
    }

    pub(super) fn headers(&self) -> Result<&[(String, String)], Failure> {
        for (name, value) in &self.headers {
            let lower = name.to_ascii_lowercase();
            if ["authorization", "key", "token", "cookie"].iter().any(|word| lower.contains(word)) {
                return Err(Failure::new(format!(
                    "the header `{name}` would show a secret to every process"
                ))
                .hint(
                    "put the key into an environment variable (`--api-key-env`) or a file (`--api-key-file`)",
                ));
            }
            if [
                "host",
                "content-length",
                "transfer-encoding",
                "connection",
                "te",
                "trailer",
                "upgrade",
                "expect",
            ]
            .contains(&lower.as_str())
            {
                return Err(Failure::new(format!("the header `{name}` says how a request is sent"))
                    .hint("it is set by the program"));
            }
            let fits = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
                && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            if !fits {
                // Its text is not repeated: it may hold a key.
                return Err(Failure::new("a `--header` cannot be sent").hint(
                    "write it as NAME=VALUE: letters, digits, `-` and `_`, then printable ASCII on one line",
                ));
            }
        }
        Ok(&self.headers)
    }
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let target = parse_target(&args.url)?;
    let secret = args.access.secret()?;
    let journal = args.journal.clone().or_else(|| args.output.as_deref().map(journal_beside));
    let trust = args.access.trust();
    let measurement = Measurement {
        target: &target,
        model: args.model.as_deref(),
        secret: secret.as_ref(),
        trust: &trust,
        headers: args.access.headers()?,
        load: &args.load,
        seed: args.seed,
        label: args.label.clone(),
        metadata: args.metadata.clone(),
        journal: journal.as_deref(),
        resume: args.resume,
        server_log: args.server_log.clone(),
        detailed: !args.no_detail,
    };
    let measured = measurement.run(&stop_on_signals(), terminal)?;
    if let Some(path) = &args.output {
        write_result(path, &measured)?;
    }
    tell(terminal, measured, args.json)
}

/// Reads a server's address from the command line or an experiment.
pub(super) fn parse_target(url: &str) -> Result<Target, Failure> {
    Target::parse(url).map_err(|error| {
        Failure::new("failed to read the server's address")
            .caused_by(error)
            .hint("write it as `http://HOST:PORT`; a key goes into `--api-key-env` or `--api-key-file`")
    })
}

/// The journal of a result file.
pub(super) fn journal_beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// Writes a result file whole: it is there with everything or not at all.
pub(super) fn write_result(path: &Path, measured: &Measured) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("failed to write the result `{}`", path.display())).caused_by(error)
    };
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let file = std::fs::File::create(&draft).map_err(failed)?;
    let mut writer = std::io::BufWriter::new(file);
    serde_json::to_writer(&mut writer, measured).map_err(|error| failed(error.into()))?;
    writer.write_all(b"\n").and_then(|()| writer.flush()).map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}

/// Prints the figures, and says by the exit code whether any request succeeded.
pub(super) fn tell(terminal: &mut Terminal<'_>, mut measured: Measured, json: bool) -> Result<Exit, Ended> {
    if json {
        measured.detailed = false;
        serde_json::to_writer_pretty(&mut *terminal.out, &measured).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        table::write(terminal, &measured)?;
    }
    Ok(if measured.summary.completed > 0 { Exit::Fine } else { Exit::CheckSaysNo })
}

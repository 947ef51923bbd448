//! `k3plan bench serve`: a load on one server, and what it took.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use executor::load::secret::Secret;
use executor::load::target::Target;
use executor::load::tls::Trust;

use super::load_args::LoadArgs;
use super::measure::{Measurement, stop_on_signals};
use super::result::Measured;
use super::table::{self, MEANING};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input_file;
use crate::output_file::{is_special, make_folder};
use crate::terminal::Terminal;

/// Send a load to an OpenAI-compatible server and measure its answers.
///
/// Traffic goes to the given URL only: no proxy is used, no redirect followed. Exit 1 when no request succeeds, or when a
/// signal (SIGINT, SIGTERM, SIGHUP) ends the run before its last request; the result is written all the same.
#[derive(clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// The server, as in http://127.0.0.1:8000.
    #[arg(long, visible_alias = "base-url", required_unless_present_any = ["host", "port"])]
    url: Option<String>,
    /// The server's host, instead of `--url` [default: 127.0.0.1].
    #[arg(long, conflicts_with = "url")]
    host: Option<String>,
    /// The server's port, instead of `--url` [default: 8000].
    #[arg(long, conflicts_with = "url")]
    port: Option<u16>,
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
    /// Folder of the result file, made when it is not there.
    #[arg(long, value_name = "FOLDER")]
    result_dir: Option<PathBuf>,
    /// Write a result file also where `--output` names none: under the name that `vllm bench serve` gives it.
    #[arg(long)]
    save_result: bool,
    /// Keep the lists of single requests in the result, as is done anyway.
    #[arg(long, conflicts_with = "no_detail")]
    save_detailed: bool,
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

/// The largest file of a key, bytes.
const KEY: u64 = 64 << 10;

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
            let text = input_file::text(path, KEY).map_err(|source| {
                let place = format!("the key file `{}` could not be read: {source}", path.display());
                Failure::new("failed to read the API key").caused_by(place)
            })?;
            return Secret::new(text.trim(), &format!("`{}`", path.display())).map(Some).map_err(failed);
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
    let target = parse_target(&args.address()?)?;
    let secret = args.access.secret()?;
    let output = args.output()?;
    let journal = args
        .journal
        .clone()
        .or_else(|| output.as_deref().filter(|path| !is_special(path)).map(journal_beside));
    if args.resume && args.journal.is_none() && args.output.is_none() {
        return Err(Failure::new("`--resume` has no journal to go on with")
            .hint("name it by `--journal`, or the result whose journal it is by `--output`")
            .into());
    }
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
    if let Some(path) = &output {
        write_result(path, &measured)?;
    }
    let interrupted = measured.interrupted.then_some((measured.records.len(), measured.requests_planned));
    let exit = tell(terminal, measured, args.json)?;
    let Some((ended, planned)) = interrupted else { return Ok(exit) };
    let go_on = if journal.is_some() { "; `--resume` goes on" } else { "" };
    writeln!(terminal.err, "interrupted: a signal ended the run after {ended} of {planned} requests{go_on}")?;
    Ok(Exit::CheckSaysNo)
}

impl Args {
    /// The server's address, in either spelling.
    fn address(&self) -> Result<String, Failure> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        let host = self.host.as_deref().unwrap_or("127.0.0.1");
        if host.contains('/') {
            return Err(Failure::new(format!("`--host` is `{host}`, not a host"))
                .hint("a whole address is given by `--url`"));
        }
        let bare = host.contains(':') && !host.starts_with('[');
        let host = if bare { format!("[{host}]") } else { host.to_owned() };
        Ok(format!("http://{host}:{}", self.port.unwrap_or(8000)))
    }

    /// Where the result goes, if anywhere.
    fn output(&self) -> Result<Option<PathBuf>, Failure> {
        let wanted = self.save_result || self.result_dir.is_some();
        let name = self.output.clone().or_else(|| wanted.then(|| PathBuf::from(self.vllms_name())));
        if let Some(folder) = &self.result_dir {
            make_folder(folder)?;
        }
        Ok(name
            .map(|name| self.result_dir.as_ref().map_or_else(|| name.clone(), |folder| folder.join(&name))))
    }

    /// The name that `vllm bench serve` (0.32, `compute_result_filename`) gives a result; the model where it is named.
    fn vllms_name(&self) -> String {
        let load = &self.load;
        let label = self.label.as_deref().unwrap_or(load.api().backend()).replace('/', "-");
        let most = load.max_concurrency.map_or_else(String::new, |most| format!("-concurrency{most}"));
        let model = self.model.as_deref().and_then(|model| model.rsplit('/').next());
        let model = model.map_or_else(String::new, |model| format!("-{model}"));
        let date = super::result::date(executor::load::run::wall_clock());
        format!("{label}-{}qps{most}{model}-{date}.json", load.request_rate)
    }
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
    if !is_special(path) {
        draft.push(".part");
    }
    let file = std::fs::File::create(&draft).map_err(failed)?;
    let mut writer = std::io::BufWriter::new(file);
    serde_json::to_writer(&mut writer, measured).map_err(|error| failed(error.into()))?;
    writer.write_all(b"\n").and_then(|()| writer.flush()).map_err(failed)?;
    if draft == path.as_os_str() { Ok(()) } else { std::fs::rename(&draft, path).map_err(failed) }
}

/// Prints the figures, and says by the exit code whether any request succeeded.
pub(super) fn tell(terminal: &mut Terminal<'_>, mut measured: Measured, json: bool) -> Result<Exit, Ended> {
    if json {
        measured.detailed = false;
        serde_json::to_writer_pretty(&mut *terminal.out, &measured).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        table::write(terminal, &table::Shown::of(&measured))?;
    }
    Ok(if measured.summary.completed > 0 { Exit::Fine } else { Exit::CheckSaysNo })
}

//! Files that have no end, on every flag that takes one.

use std::process::{Command, Stdio};

use crate::support::Folder;

/// Longer than any of them takes, seconds.
const PATIENCE: &str = "30";

#[test]
fn what_has_no_end_is_refused() {
    let own = Folder::new("inputs");
    let pipe = own.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    own.write(
        "config.json",
        r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}"#,
    );
    let mut wrong = Vec::new();
    let serve = "bench serve --url http://127.0.0.1:9 --model m";
    let commands = [
        "plan FILE".to_owned(),
        "plan --model FILE".to_owned(),
        "plan --model config.json --draft FILE".to_owned(),
        "check --baseline FILE".to_owned(),
        "check --update FILE".to_owned(),
        "explain FILE".to_owned(),
        "diff FILE FILE".to_owned(),
        "fit FILE".to_owned(),
        "capacity --model FILE --slo ttft<1s --rate 1".to_owned(),
        "simulate FILE".to_owned(),
        "simulate --model config.json --num-blocks 1000 --workload FILE".to_owned(),
        "predict FILE".to_owned(),
        "capacity --model config.json --slo ttft<1s --rate 1 --calibration FILE".to_owned(),
        "verify FILE".to_owned(),
        "import hf FILE".to_owned(),
        "import log FILE".to_owned(),
        "compare FILE -- FILE".to_owned(),
        "calibrate FILE".to_owned(),
        "bench report FILE".to_owned(),
        "bench run FILE".to_owned(),
        format!("{serve} --api-key-file FILE"),
        format!("{serve} --ca-file FILE"),
        format!("{serve} --server-log FILE"),
        format!("{serve} --journal FILE --resume"),
        format!("{serve} --dataset-name custom --dataset-path FILE"),
    ];
    for file in ["/dev/zero", pipe.to_str().unwrap()] {
        for command in &commands {
            let words = command.split(' ').map(|word| if word == "FILE" { file } else { word });
            let output = Command::new("timeout")
                .args([PATIENCE, "sh", "-c", "ulimit -v 1000000; exec \"$0\" \"$@\""])
                .arg(env!("CARGO_BIN_EXE_k3plan"))
                .args(words)
                .current_dir(own.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
            if code != Some(2) || !said.contains("no regular file") {
                wrong.push(format!("{command} on {file}: {code:?} {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

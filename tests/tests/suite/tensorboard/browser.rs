//! A headless Chromium, controlled with its DevTools protocol over a pipe. The messages are JSON, each followed by a zero byte.

use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Command line options. Without the third one, charts have no lines.
const FLAGS: [&str; 11] = [
    "--headless",
    "--disable-gpu",
    "--disable-3d-apis",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-sandbox",
    "--remote-debugging-pipe",
];

/// Time limit of any change in a page.
const PATIENCE: Duration = Duration::from_secs(90);

/// First part of every script. It collects all visible elements of the page, including those in shadow trees and frames.
const ELEMENTS: &str = "
    const elements = [], texts = [];
    const walk = node => {
        if (node.nodeType === Node.TEXT_NODE && node.nodeValue.trim()) texts.push(node.nodeValue.trim());
        if (node.nodeType === Node.ELEMENT_NODE) {
            const style = node.ownerDocument.defaultView?.getComputedStyle(node);
            if (!style || style.display === 'none' || style.visibility === 'hidden') return;
            elements.push(node);
            if (node.shadowRoot) walk(node.shadowRoot);
            if (node.tagName === 'IFRAME' && node.contentDocument) walk(node.contentDocument);
        }
        node.childNodes.forEach(walk);
    };
    walk(document);";

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser that `GRADLET_CHROMIUM` names, or `chromium`, with its own temporary profile.
    pub fn start() -> Browser {
        let program = std::env::var_os("GRADLET_CHROMIUM").map_or_else(|| PathBuf::from("chromium"), PathBuf::from);
        let profile = TempDir::new().unwrap();
        // The browser's end of the pipe is its descriptors 3 and 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"]).arg(&program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut pipe = BufReader::new(child.stdout.take().unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while pipe.read_until(0, &mut message).is_ok_and(|length| length > 1) {
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let to = child.stdin.take().unwrap();
        let mut browser = Browser { child, to, from, session: None, calls: 0, _profile: profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|target| target["type"] == "page").unwrap();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(String::from);
        browser.call("Page.enable", json!({}));
        browser.size(1100, 700);
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("Chromium did not answer {method}: {error}"));
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Sets the size of the page, in pixels.
    pub fn size(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub fn open(&mut self, url: &str) {
        // A change of only the fragment would not load the page.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Runs a function's body in the page, and returns its value. The body can use the page's `elements` and `texts`.
    pub fn run(&mut self, body: &str) -> Value {
        let expression = format!("(() => {{ {ELEMENTS}\n{body} }})()");
        let result = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(result["exceptionDetails"].is_null(), "{body}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Returns the page's texts, one per line.
    pub fn text(&mut self) -> String {
        self.run("return texts.join('\\n')").as_str().unwrap().to_string()
    }

    /// Runs the function's body in the page again and again, until it returns true. Panics after [`PATIENCE`].
    #[track_caller]
    pub fn wait(&mut self, body: &str) {
        let start = Instant::now();
        while self.run(body) != true {
            if start.elapsed() > PATIENCE {
                let kept = self.keep("failed");
                panic!("not true after {PATIENCE:?}: {body}\nScreenshot of the page: {}\nIts text:\n{}", kept.display(), self.text());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until the page shows these texts in this order. Other texts may be between them.
    #[track_caller]
    pub fn shows(&mut self, texts: &[&str]) {
        let wanted = json!(texts);
        self.wait(&format!(
            "let next = 0; const wanted = {wanted}; \
             for (const text of texts) if (text === wanted[next]) next++; return next === wanted.length"
        ));
    }

    /// Waits for an element with this tag whose text contains `text`, and clicks the first one.
    #[track_caller]
    pub fn click(&mut self, tag: &str, text: &str) {
        let (tag, text) = (json!(tag), json!(text));
        self.wait(&format!(
            "const found = elements.find(e => e.tagName.toLowerCase() === {tag} && e.textContent.includes({text})); \
             found?.click(); return !!found"
        ));
    }

    /// Waits for an element with this tag, and moves the mouse over the first one. The position is a fraction of its width and height.
    #[track_caller]
    pub fn hover(&mut self, tag: &str, across: f64, down: f64) {
        let find = format!("const found = elements.find(e => e.tagName.toLowerCase() === {});", json!(tag));
        self.wait(&format!("{find} return !!found?.getBoundingClientRect().width"));
        let place = self.run(&format!("{find} const at = found.getBoundingClientRect(); return [at.x, at.y, at.width, at.height]"));
        let at = |index: usize| place[index].as_f64().unwrap();
        let (x, y) = (at(0) + across * at(2), at(1) + down * at(3));
        // Two positions, because the page reacts only to a movement.
        for x in [x - 4.0, x] {
            self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
        }
    }

    /// Saves a screenshot of the page in target/tensorboard.
    pub fn keep(&mut self, name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tensorboard");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name).with_extension("png");
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser's helper processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

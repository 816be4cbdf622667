//! The page: what it may do, and that it comes whole from the server.

use crate::support::Server;
use gannet_server::Keys;

#[test]
fn the_page_needs_no_key_and_may_load_nothing_from_elsewhere() {
    let server = Server::with(|setup| setup.config.keys = Keys::parse("first-key").unwrap());
    for (path, kind) in [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("content-type").unwrap().starts_with(kind));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        // Addresses of other places are names of formats or patterns, never loaded.
        let body = answer.body.replace("http://www.w3.org/2000/svg", "").replace("https?:", "");
        assert!(!body.contains("http:") && !body.contains("https:"), "{path}");
        assert!(
            !body.contains("innerHTML") && !body.contains("style=") && !body.contains("onclick"),
            "{path}"
        );
    }
    assert_eq!(server.get("/v1/models").status, 401);
}

#[test]
fn all_that_the_page_names_is_there() {
    let server = Server::start();
    let (page, script) = (server.get("/").body, server.get("/page.js").body);
    let ids = script.split("find(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let ids: Vec<&str> = ids.collect();
    assert!(ids.len() > 20);
    for id in ids {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    server.ask(
        "/v1/chat/completions",
        &serde_json::json!({
            "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2,
        }),
    );
    let metrics = server.get("/metrics").body;
    let series = script.split('"').filter(|text| text.starts_with("vllm:") || text.starts_with("gannet_"));
    for name in series {
        assert!(metrics.contains(name), "{name}");
    }
}

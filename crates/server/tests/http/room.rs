//! Room: the context, the queue, time, and those who leave.

use crate::support::{Connection, Server};
use gannet_server::Limits;
use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;

const PATH: &str = "/v1/completions";

fn long(more: Value) -> Value {
    let mut body =
        json!({"model": "toy", "prompt": "the hen", "max_tokens": 480, "temperature": 0, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A server of one sequence, whose context holds an answer that nobody waits for: it ends when its client leaves.
fn endless(change: impl FnOnce(&mut Limits)) -> Server {
    Server::with(|setup| {
        setup.sequences = 1;
        setup.context = Some(ENDLESS + 64);
        change(&mut setup.limits);
    })
}

/// Tokens of such an answer.
const ENDLESS: usize = 1 << 20;

#[test]
fn what_the_context_can_not_hold_is_refused_with_the_numbers() {
    let server = Server::start();
    let message = server.refuses(PATH, &long(json!({"max_tokens": 600})), 400, "max_tokens");
    assert!(message.contains("512") && message.contains("600"), "{message}");
    let message = server.refuses(PATH, &long(json!({"prompt": "hen ".repeat(400)})), 400, "prompt");
    assert!(message.contains("512"), "{message}");
    let chat = json!({"model": "toy", "messages": [{"role": "user", "content": "hen ".repeat(400)}]});
    let answer = server.post("/v1/chat/completions", &chat);
    answer.is_error(400, Some("messages"));
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
}

#[test]
fn a_full_queue_refuses_at_once_and_says_when_to_come_again() {
    let server = endless(|limits| limits.waiting = 1);
    server.refuses(PATH, &long(json!({"n": 3})), 400, "n");
    server.ask(PATH, &long(json!({"n": 2, "max_tokens": 4})));
    let stream = || begun(&server, &long(json!({"stream": true, "max_tokens": ENDLESS})));
    let mut streams = [stream(), stream()];
    streams.iter_mut().for_each(|stream| drop(stream.read_until("\r\n\r\n")));
    let refused = server.post(PATH, &long(json!({})));
    let message = refused.is_error(429, None);
    assert!(message.contains("at most 1 may"), "{message}");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    // Those who leave make room, whether they run or wait.
    drop(streams);
    let served = (0..200).any(|_| server.post(PATH, &long(json!({"max_tokens": 2}))).status == 200);
    assert!(served);
}

#[test]
fn what_there_is_never_room_for_is_no_matter_of_coming_again() {
    let server = Server::with(|setup| {
        setup.names = vec!["toy", "vectors"];
        (setup.sequences, setup.limits.waiting) = (1, 1);
    });
    let message = server.refuses(PATH, &long(json!({"prompt": ["a", "b", "c"]})), 400, "prompt");
    assert!(message.contains("3 answers at once are more than the 2"), "{message}");
    server.refuses(PATH, &long(json!({"prompt": ["a", "b"], "n": 2})), 400, "prompt");
    server.refuses("/v1/embeddings", &json!({"model": "vectors", "input": ["a", "b", "c"]}), 400, "input");
    server.ask("/v1/embeddings", &json!({"model": "vectors", "input": ["a", "b"]}));
}

#[test]
fn a_request_ends_at_its_time() {
    let server = Server::start();
    let message = server.refuses(PATH, &long(json!({"timeout": 0.001})), 408, "timeout");
    assert!(message.contains("0.001"), "{message}");
    let streamed = server.post(PATH, &long(json!({"timeout": 0.001, "stream": true})));
    let last = streamed.events().pop().unwrap();
    assert_eq!(last["error"]["type"], "timeout_error");
    server.refuses(PATH, &long(json!({"timeout": 1e9})), 400, "timeout");
    let own = endless(|limits| limits.request_time = Duration::from_millis(2));
    let message = own.post(PATH, &long(json!({"max_tokens": ENDLESS}))).is_error(504, None);
    assert!(message.contains("0.002"), "{message}");
}

#[test]
fn silence_in_a_stream_is_filled_with_comments() {
    let server = endless(|limits| limits.keep_alive = Duration::from_millis(1));
    let mut first = begun(&server, &long(json!({"stream": true, "max_tokens": ENDLESS})));
    first.read_until("data: ");
    // This one waits in the queue until the first is left.
    let mut second = begun(&server, &long(json!({"stream": true, "max_tokens": 2})));
    let silence = second.read_until(": keep-alive, 0 requests go before\n\n");
    assert!(!silence.contains("data: "), "{silence}");
    drop(first);
    let rest = String::from_utf8(second.read_bytes()).unwrap();
    assert!(rest.contains("\"length\"") && rest.contains("data: [DONE]"), "{rest}");
}

#[test]
fn a_long_prompt_is_no_silence() {
    let server = endless(|limits| limits.keep_alive = Duration::from_millis(1));
    let mut stream = begun(&server, &long(json!({"stream": true, "max_tokens": 1, "prompt": vec![7; 8000]})));
    let before = stream.read_until("data: ");
    // Nothing goes before it: its prompt is what takes so long.
    assert!(before.contains(": keep-alive\n\n"), "{before}");
}

/// A connection on which this request was sent.
fn begun(server: &Server, body: &Value) -> Connection {
    server.connect().begin(PATH, "", body.to_string().as_bytes())
}

#[test]
fn who_leaves_without_an_answer_makes_room_too() {
    let server = endless(|limits| limits.waiting = 1);
    let whole = || begun(&server, &long(json!({"max_tokens": ENDLESS})));
    let asked = [whole(), whole()];
    server.wait_for(WAITING, 1.0);
    server.post(PATH, &long(json!({}))).is_error(429, None);
    drop(asked);
    server.wait_for("vllm:request_success_total{model_name=\"toy\",finished_reason=\"abort\"}", 2.0);
    server.ask(PATH, &long(json!({"max_tokens": 2})));
}

/// How many answers wait for a sequence.
const WAITING: &str = "vllm:num_requests_waiting";

#[test]
fn of_those_that_wait_the_lower_number_goes_first() {
    let server = endless(|_| ());
    let stream = |priority: i32| {
        begun(&server, &long(json!({"stream": true, "max_tokens": ENDLESS, "priority": priority})))
    };
    let mut first = stream(0);
    first.read_until("data: ");
    let _later = stream(5);
    server.wait_for(WAITING, 1.0);
    let mut sooner = stream(-5);
    server.wait_for(WAITING, 2.0);
    drop(first);
    // None of them ends by itself, so that the one that begins is the one that goes first.
    sooner.read_until("data: ");
}

#[test]
fn a_stream_that_is_left_unread_is_given_up_and_says_why() {
    let server = endless(|limits| limits.unsent_bytes = 1 << 16);
    let body = long(json!({"stream": true, "max_tokens": ENDLESS, "logprobs": 20, "temperature": 1}));
    let slow = Connection::open_narrow(server.address);
    let mut slow = slow.begin(PATH, "", body.to_string().as_bytes());
    server.wait_for("vllm:request_success_total{model_name=\"toy\",finished_reason=\"abort\"}", 1.0);
    server.ask(PATH, &long(json!({"max_tokens": 2})));
    let text = String::from_utf8(slow.read_bytes()).unwrap();
    let (rest, error) = text.rsplit_once("data: {\"error\"").unwrap();
    assert!(error.contains("read too slowly") && error.contains("data: [DONE]"), "{error}");
    assert!(rest.contains("top_logprobs"));
}

#[test]
fn a_reader_that_does_not_read_blocks_nobody() {
    let server = Server::start();
    let mut slow = begun(&server, &long(json!({"stream": true, "n": 2, "logprobs": 20, "temperature": 1})));
    for _ in 0..4 {
        server.ask(PATH, &long(json!({"max_tokens": 4})));
    }
    let mut all = String::new();
    slow.stream.read_to_string(&mut all).unwrap();
    assert!(all.contains("[DONE]"));
}

#[test]
fn a_server_that_stops_ends_what_it_has() {
    let mut server = Server::start();
    let mut stream = begun(&server, &long(json!({"stream": true, "max_tokens": 400})));
    stream.read_until("data: ");
    server.stop();
    let rest = String::from_utf8(stream.read_bytes()).unwrap();
    assert!(rest.contains("[DONE]") && rest.contains("\"length\""), "{rest}");
    server.join();
}

#[test]
fn a_server_that_stops_takes_nothing_new_and_says_so() {
    let mut server = endless(|_| ());
    let mut stream = begun(&server, &long(json!({"stream": true, "max_tokens": ENDLESS})));
    stream.read_until("data: ");
    server.stop();
    let ready = (0..100_000).map(|_| server.get("/ready")).find(|answer| answer.status != 200).unwrap();
    assert_eq!((ready.status, &ready.json()["status"]), (503, &json!("draining")));
    assert_eq!(server.get("/health").status, 200);
    let refused = server.post(PATH, &long(json!({"max_tokens": 2})));
    assert!(refused.is_error(503, None).contains("is stopping"), "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "draining");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let mut kept = server.connect();
    kept.write(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n");
    let last = String::from_utf8(kept.read_bytes()).unwrap();
    assert!(last.contains("HTTP/1.1 503") && last.contains("connection: close"), "{last}");
    // When the last one has left there is nothing to wait for.
    drop(stream);
    server.join();
}

#[test]
fn what_is_left_when_the_time_to_drain_is_over_hears_so() {
    let mut server = endless(|limits| limits.drain_time = Duration::from_millis(1));
    let mut stream = begun(&server, &long(json!({"stream": true, "max_tokens": ENDLESS, "n": 2})));
    stream.read_until("data: ");
    server.stop();
    let rest = String::from_utf8(stream.read_bytes()).unwrap();
    assert!(rest.contains("the server is stopping"), "{rest}");
    server.join();
}

#[test]
fn a_prompt_is_cut_where_that_is_asked_for_and_the_answer_says_so() {
    let server = Server::start();
    let prompt = json!({"prompt": vec![7; 400], "max_tokens": 20, "return_token_ids": true});
    let whole = server.ask(PATH, &long(prompt.clone()));
    assert_eq!(whole["usage"]["prompt_tokens_details"].get("truncated_tokens"), None);
    let cut = |more: Value| {
        let mut body = long(prompt.clone());
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.ask(PATH, &body)
    };
    let answer = cut(json!({"truncate_prompt_tokens": 30}));
    assert_eq!(answer["usage"]["prompt_tokens"], 30);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["truncated_tokens"], 370);
    let alone = server.ask(PATH, &long(json!({"prompt": vec![7; 30], "max_tokens": 20})));
    assert_eq!(answer["choices"][0]["text"], alone["choices"][0]["text"]);
    let echoed = cut(json!({"truncate_prompt_tokens": 30, "echo": true, "return_token_ids": true}));
    assert_eq!(echoed["choices"][0]["prompt_token_ids"].as_array().unwrap().len(), 30);
    // What fits beside the answer is kept.
    let answer = cut(json!({"truncate_prompt_tokens": -1, "max_tokens": 200}));
    assert_eq!(answer["usage"]["prompt_tokens"], 312);
    for (wrong, part) in
        [(json!(0), "at least one token"), (json!(-2), "from -1"), (json!("all"), "a whole number")]
    {
        let message = server.refuses(
            PATH,
            &long(json!({"truncate_prompt_tokens": wrong})),
            400,
            "truncate_prompt_tokens",
        );
        assert!(message.contains(part), "{message}");
    }
    let chat = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hen ".repeat(400)}], "max_tokens": 8,
        "truncate_prompt_tokens": -1,
    });
    let answer = server.ask("/v1/chat/completions", &chat);
    assert_eq!(answer["usage"]["prompt_tokens"], 504);
    assert!(answer["usage"]["prompt_tokens_details"]["truncated_tokens"].as_u64().unwrap() > 0);
    let message = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hen ".repeat(400)}], "max_tokens": 8,
        "truncate_prompt_tokens": 100,
    });
    let answer = server.ask("/v1/messages", &message);
    assert!(answer["usage"]["truncated_input_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn a_stream_tells_how_far_its_prompt_is_where_that_is_asked_for() {
    let server = Server::start();
    let body = json!({"prompt": vec![7; 300], "max_tokens": 2, "stream": true, "return_progress": true});
    for round in 0..2 {
        let events = server.post(PATH, &long(body.clone())).events();
        let progress: Vec<&Value> = events
            .iter()
            .map(|event| &event["prompt_progress"])
            .filter(|progress| progress.is_object())
            .collect();
        let numbers =
            |name: &str| -> Vec<u64> { progress.iter().map(|it| it[name].as_u64().unwrap()).collect() };
        let processed = numbers("processed");
        assert!(processed.len() >= 2 && processed.is_sorted(), "{progress:?}");
        assert_eq!((processed[0], *processed.last().unwrap()), (numbers("cache")[0], 300));
        assert!(numbers("total").iter().all(|total| *total == 300));
        assert_eq!(numbers("cache")[0] > 0, round > 0, "{progress:?}");
        // The first chunk of the answer comes behind.
        let first = events.iter().position(|event| !event["choices"].as_array().unwrap().is_empty()).unwrap();
        assert_eq!(first, progress.len());
    }
    let silent = server.post(PATH, &long(json!({"max_tokens": 2, "stream": true}))).events();
    assert!(silent.iter().all(|event| event.get("prompt_progress").is_none()));
    server.refuses(PATH, &long(json!({"return_progress": true})), 400, "return_progress");
}

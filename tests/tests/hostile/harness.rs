//! Hostile peers against the harness's listener.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bma_runtime_tokio::HarnessEvent;
use bma_runtime_tokio::proto::harness::Gone;
use bma_runtime_tokio::sync::Event;
use bma_tests::support::raw::{Raw, opcode, request_head};

use super::attacks::{FRAMES, MESSAGES, noise};
use super::support::{Good, Target, reset};

const REGISTER: &str = r#"{"jsonrpc":"2.0","id":"r","method":"executor.register","params":{"protocol":"bma.executor.v1.1",
    "environment_id":"","executor":{"name":"evil","os":"","arch":"","version":""},
    "capabilities":{"shell":{"enabled":true}}}}"#;

/// A registered executor.
fn registered(target: &Target) -> Raw {
    let mut raw = Raw::client(target.address, &target.token).unwrap();
    raw.text(REGISTER).unwrap();
    assert!(raw.read_text().unwrap().contains("connection_id"));
    raw
}

/// Reads whatever still comes, until the end.
fn drain(raw: &mut Raw) {
    let mut bytes = [0; 65_536];
    while raw.stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

/// The answer's status, or nothing when the connection was just closed.
fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_request_are_refused() {
    let good = Good::new(|_| {}).await;
    good.attacked(|target| {
        let head = request_head(&target.token);
        for (bytes, wanted) in [
            (noise(4096), Some(400)),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), Some(400)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Some(505)),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Some(400)),
            (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(), Some(426)),
            (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc".to_vec(), Some(405)),
            (head.replace("HTTP/1.1", "HTTP/0.9").into_bytes(), Some(505)),
            (head.replace("Version: 13", "Version: 99").into_bytes(), Some(426)),
            (head.replace("AAAAAAAAAAAAAAAAAAAAAA==", "short").into_bytes(), Some(400)),
            (head.replace("\r\n\r\n", "\r\nX: a\0b\r\n\r\n").into_bytes(), Some(400)),
            (head.replace(&target.token, "someone-elses").into_bytes(), Some(401)),
            (head.replace("\r\n\r\n", &format!("\r\nX: {}\r\n\r\n", "x".repeat(9_000))).into_bytes(), Some(431)),
            (vec![b'A'; 1 << 20], Some(431)),
            (b"\r\n".repeat(100_000), None),
        ] {
            let mut raw = Raw::dial(target.address);
            let _ = raw.stream.write_all(&bytes);
            let answered = status(&mut raw.stream);
            // A reset can overtake the answer when more was sent than was read.
            let reset = bytes.len() > 8192 && answered.is_none();
            assert!(
                reset || wanted.is_none() || answered == wanted,
                "{answered:?}, not {wanted:?}: {:?}",
                &bytes[..20]
            );
        }
    })
    .await;
    good.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_has_its_time() {
    let good = Good::new(|_| {}).await;
    good.attacked(|target| {
        let slow: Vec<_> = (0..50)
            .map(|number| {
                let target = target.clone();
                std::thread::spawn(move || {
                    let mut raw = Raw::dial(target.address);
                    let begun = Instant::now();
                    // A byte at a time, at different paces; some stop in the middle.
                    for byte in request_head(&target.token).bytes().cycle() {
                        if raw.stream.write_all(&[byte]).is_err() {
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(5 + number % 7 * 5));
                        if begun.elapsed() > Duration::from_millis(400) && number.is_multiple_of(2) {
                            break;
                        }
                    }
                    drain(&mut raw);
                    begun.elapsed()
                })
            })
            .collect();
        for slow in slow {
            let lasted = slow.join().unwrap();
            assert!(lasted < Duration::from_secs(10), "closed after {lasted:?}");
        }
    })
    .await;
    good.finish().await;
}

/// At the bound newer ones are dropped; who is registered is served, and once
/// the silent ones have had their time there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_connections_that_say_nothing_are_dropped_in_time() {
    let good = Good::new(|options| options.max_upgrading = 100).await;
    good.attacked(|target| {
        let mut silent: Vec<_> = (0..300).map(|_| Raw::dial(target.address)).collect();
        let begun = Instant::now();
        silent.iter_mut().for_each(drain);
        assert!(begun.elapsed() < Duration::from_secs(10), "all were closed, after {:?}", begun.elapsed());
        registered(&target);
    })
    .await;
    good.finish().await;
}

/// An upgraded connection that does not register.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_before_the_registration_end_that_connection() {
    let good = Good::new(|_| {}).await;
    good.attacked(|target| {
        let attacks = FRAMES.iter().chain(MESSAGES).map(|(name, attack)| {
            let target = target.clone();
            let attacker = std::thread::spawn(move || {
                let mut raw = Raw::client(target.address, &target.token).unwrap();
                let begun = Instant::now();
                let _ = attack(&mut raw);
                drain(&mut raw);
                begun.elapsed()
            });
            (name, attacker)
        });
        for (name, attacker) in attacks.collect::<Vec<_>>() {
            let lasted = attacker.join().unwrap();
            assert!(lasted < Duration::from_secs(15), "{name}: closed after {lasted:?}");
        }
    })
    .await;
    assert_eq!(good.rig.harness.executors().len(), 1);
    good.finish().await;
}

/// An executor that was fine so far. What is only nonsense is answered, and it stays.
#[tokio::test(flavor = "multi_thread")]
async fn attacks_after_the_registration_harm_nobody_else() {
    let good = Good::new(|options| options.config.lease_ttl = Duration::from_secs(2)).await;
    good.attacked(|target| {
        for (name, attack) in FRAMES {
            let mut raw = registered(&target);
            let _ = attack(&mut raw);
            // Some attacks leave the connection open: closing it is then up to us.
            let _ = raw.write(true, opcode::CLOSE, &[0x03, 0xe8]);
            let _ = raw.stream.shutdown(std::net::Shutdown::Write);
            let begun = Instant::now();
            drain(&mut raw);
            assert!(begun.elapsed() < Duration::from_secs(10), "{name}");
        }
        for (name, attack) in MESSAGES {
            let mut raw = registered(&target);
            let reader = {
                let mut raw = raw.another();
                std::thread::spawn(move || {
                    while let Ok(text) = raw.read_text() {
                        if text.contains("still here") {
                            return true;
                        }
                    }
                    false
                })
            };
            attack(&mut raw).unwrap_or_else(|error| panic!("{name}: {error}"));
            raw.text(r#"{"jsonrpc":"2.0","id":"still here","method":"session.ended","params":{"session_id":"x","reason":""}}"#)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(reader.join().unwrap(), "{name}: the connection goes on");
            reset(raw.stream);
        }
    })
    .await;
    good.finish().await;
}

/// At every step of a connection's life, many times over.
#[tokio::test(flavor = "multi_thread")]
async fn resets_in_every_phase_leave_nothing() {
    let good = Good::new(|options| options.config.lease_ttl = Duration::from_secs(2)).await;
    good.attacked(|target| {
        let head = request_head(&target.token);
        for _ in 0..20 {
            reset(Raw::dial(target.address).stream);
            for cut in [1, head.len() / 2, head.len() - 1, head.len()] {
                let mut raw = Raw::dial(target.address);
                raw.stream.write_all(&head.as_bytes()[..cut]).unwrap();
                reset(raw.stream);
            }
            reset(Raw::client(target.address, &target.token).unwrap().stream);
            let mut raw = Raw::client(target.address, &target.token).unwrap();
            raw.text(REGISTER).unwrap();
            reset(raw.stream);
            let mut raw = registered(&target);
            raw.stream.write_all(&[0x81, 0xfe]).unwrap();
            reset(raw.stream);
            let mut raw = registered(&target);
            raw.write(true, opcode::CLOSE, &[0x03, 0xe8]).unwrap();
            reset(raw.stream);
        }
    })
    .await;
    good.finish().await;
}

/// It is not read from any more, so it does not live, so it is gone with its lease.
#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_takes_no_answers_is_not_read_from_and_loses_its_lease() {
    let good = Good::new(|options| options.config.lease_ttl = Duration::from_secs(2)).await;
    let mut comings = good.rig.harness.events();
    let sent = good
        .attacked(|target| {
            let mut raw = registered(&target);
            raw.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let request = format!(
                r#"{{"jsonrpc":"2.0","id":"{}","method":"session.event","params":{{"session_id":"s","event":{{"a":"{}"}}}}}}"#,
                "i".repeat(500),
                "x".repeat(2_000)
            );
            let mut sent = 0;
            while sent < 256 << 20 && raw.text(&request).is_ok() {
                sent += request.len();
            }
            // Kept open: the harness ends it.
            drain(&mut raw);
            sent
        })
        .await;
    assert!(sent < 64 << 20, "{sent} bytes were taken, and no answer");
    loop {
        match comings.next().await {
            Some(Event::Item(HarnessEvent::Gone { gone, .. })) => break assert_eq!(gone, Gone::LeaseExpired),
            Some(_) => {}
            None => panic!("the harness is there"),
        }
    }
    good.finish().await;
}

/// More executors than the harness has room for.
#[tokio::test(flavor = "multi_thread")]
async fn executors_beyond_the_bound_are_told_to_come_later() {
    let good = Good::new(|options| options.config.max_executors = 4).await;
    good.attacked(|target| {
        let _kept: Vec<_> = (0..3).map(|_| registered(&target)).collect();
        let mut raw = Raw::client(target.address, &target.token).unwrap();
        raw.text(REGISTER).unwrap();
        let answer = raw.read_text().unwrap();
        assert!(answer.contains("-32009"), "{answer}");
        // Not 4002, which would count as a refusal for good.
        assert_eq!(raw.read_to_close(), Some(1013));
    })
    .await;
    assert_eq!(good.rig.harness.executors().len(), 4);
    for executor in good.rig.harness.executors() {
        if executor.id() != good.executor.id() {
            executor.close("").await;
        }
    }
    good.finish().await;
}

/// And what was asked for is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_answer_ends_the_call_that_it_answers() {
    use bma_tests::exchange_suite::{assignment, within};
    let good = Good::new(|options| options.config.request_timeout = Duration::from_secs(2)).await;
    for answer in [
        r#""result":{"accepted":"yes"}"#,
        r#""result":null"#,
        r#""result":[]"#,
        r#""error":7"#,
        r#""error":{"code":1.5,"message":{}}"#,
        r#""result":{},"error":{}"#,
    ] {
        let mut comings = good.rig.harness.events();
        let attack = good.attacked(move |target| -> io::Result<()> {
            let mut raw = registered(&target);
            let assign = raw.read_text()?;
            let id = assign.split(r#""id":"#).nth(1).unwrap().split([',', '}']).next().unwrap().to_owned();
            raw.text(&format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#))?;
            // The session is told to stop where it may have been taken.
            drain(&mut raw);
            Ok(())
        });
        let asked = async {
            let evil = loop {
                match comings.next().await {
                    Some(Event::Item(HarnessEvent::Registered { executor, .. })) => break executor,
                    Some(_) => {}
                    None => panic!("the harness is there"),
                }
            };
            let assigned = within(&good.rig.runtime, Duration::from_secs(10), evil.assign(assignment("e"))).await;
            assert!(assigned.expect("it is answered").is_err(), "{answer}");
            evil.close("").await;
        };
        let (attacked, ()) = tokio::join!(attack, asked);
        attacked.unwrap();
    }
    good.finish().await;
}

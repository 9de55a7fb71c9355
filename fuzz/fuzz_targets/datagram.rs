//! Datagrams into the matcher: the one that is awaited matches, no other does, and what is told of a difference is
//! where it is.
#![no_main]

use libfuzzer_sys::{arbitrary, arbitrary::Arbitrary, fuzz_target};
use xds_health::config::{Payload, UdpConfig};
use xds_health::event::{Mismatch, Reason};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    receive: &'a [u8],
    datagrams: Vec<&'a [u8]>,
}

fuzz_target!(|input: Input<'_>| {
    let Ok(receive) = Payload::new(input.receive) else {
        return;
    };
    let config = UdpConfig::new(Payload::new(&b"x"[..]).unwrap(), receive);
    let mut mismatch = None;
    let mut passed_over = 0;
    let longer = [input.receive, b"!"].concat();
    let shorter = input.receive.split_last().map(|(_, rest)| rest);
    let made = [Some(input.receive), Some(&longer[..]), shorter];
    for datagram in input
        .datagrams
        .iter()
        .copied()
        .chain(made.into_iter().flatten())
    {
        // As it is read: cut at one byte more than is awaited.
        let got = &datagram[..datagram.len().min(input.receive.len() + 1)];
        let same = datagram == input.receive;
        assert_eq!(config.matches(got), same);
        if same {
            continue;
        }
        passed_over += 1;
        let noted = Mismatch::note(mismatch.take(), config.receive(), got);
        assert_eq!(noted.datagrams, passed_over);
        let at = noted.first_difference as usize;
        assert_eq!(got[..at], input.receive[..at]);
        assert_ne!(got.get(at), input.receive.get(at));
        assert!(noted.sample.len() <= Mismatch::SAMPLE && got.starts_with(&noted.sample));
        assert!(
            !Reason::Mismatch(noted.clone().into())
                .to_string()
                .is_empty()
        );
        mismatch = Some(noted);
    }
});

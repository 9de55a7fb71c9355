//! An input cut into frames.

/// What happens, how much time passes, and bytes; none once the input is used up.
pub fn next<'a>(rest: &mut &'a [u8]) -> Option<(u8, u8, &'a [u8])> {
    let [what, time, high, low, bytes @ ..] = *rest else {
        return None;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len());
    let (frame, others) = bytes.split_at(length);
    *rest = others;
    Some((*what, *time, frame))
}

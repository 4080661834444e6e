//! A tool result that is too large for one frame is cut, never lost: the
//! sender does not exceed the limit, and a harness does not get stuck on it.

use crate::contract::{ContentBlock, ContentBlockType, ToolResultParams};

/// What frame and notices need beside the content.
const ENVELOPE_BYTES: usize = 512;

/// Cuts `result` until it fits into a frame of `limit` bytes. True when something was cut.
///
/// Text is cut at its end, the largest block first, with a notice that counts
/// what was left out; other content that is too large is replaced by a notice.
pub(super) fn shrink_to_fit(result: &mut ToolResultParams, limit: usize) -> bool {
    let mut cut = false;
    while let Some(excess) = excess(result, limit) {
        cut = true;
        let largest = result.content.iter_mut().max_by_key(|block| weight(block));
        match largest {
            Some(block) if weight(block) > NOTICE_ROOM => shrink_block(block, excess),
            _ => {
                // Nothing large is left: it is the number of blocks or artifacts.
                let blocks = std::mem::take(&mut result.content).len();
                let artifacts = std::mem::take(&mut result.artifacts).len();
                let text =
                    format!("[{blocks} content blocks and {artifacts} artifacts left out: over the frame limit]");
                result.content = vec![ContentBlock::text(text)];
                break;
            }
        }
    }
    cut
}

/// A block that is not larger than this is a notice already.
const NOTICE_ROOM: usize = 256;

/// By how many bytes the frame would be over the limit.
fn excess(result: &ToolResultParams, limit: usize) -> Option<usize> {
    let bytes = serde_json::to_string(result).map_or(usize::MAX, |text| text.len());
    bytes.saturating_add(ENVELOPE_BYTES).checked_sub(limit).filter(|excess| *excess > 0)
}

fn weight(block: &ContentBlock) -> usize {
    serde_json::to_string(block).map_or(0, |text| text.len())
}

fn shrink_block(block: &mut ContentBlock, excess: usize) {
    match &mut block.text {
        Some(text) if text.len() > NOTICE_ROOM => {
            let keep = kept_prefix(text, excess + NOTICE_ROOM / 2);
            let left_out = text.len() - keep;
            text.truncate(keep);
            text.push_str(&format!("\n[{left_out} bytes left out: the result is over the frame limit]"));
        }
        _ => {
            let bytes = weight(block);
            let kind = std::mem::replace(&mut block.r#type, ContentBlockType::Text);
            *block = ContentBlock::text(format!("[{kind} block of {bytes} bytes left out: over the frame limit]"));
        }
    }
}

/// How much of `text` to keep so that its JSON form gets at least `excess` bytes shorter.
fn kept_prefix(text: &str, excess: usize) -> usize {
    let mut saved = 0;
    for (at, character) in text.char_indices().rev() {
        saved += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..'\u{20}' => 6,
            other => other.len_utf8(),
        };
        if saved >= excess {
            return at;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    fn fits(result: &ToolResultParams, limit: usize) -> bool {
        serde_json::to_string(result).unwrap().len() + ENVELOPE_BYTES <= limit
    }

    #[test]
    fn text_that_grows_sixfold_by_escapes_fits_after_all() {
        let text = "\u{1}".repeat(48 * 1024);
        let mut result = ToolResultParams { content: vec![ContentBlock::text(text)], ..Default::default() };
        assert!(shrink_to_fit(&mut result, 65_536));
        assert!(fits(&result, 65_536));
        let text = result.content[0].text.as_deref().unwrap();
        assert!(text.len() > 10_000, "as much as fits is kept");
        assert!(text.ends_with("left out: the result is over the frame limit]"));
    }

    #[test]
    fn a_cut_falls_between_characters() {
        let mut result =
            ToolResultParams { content: vec![ContentBlock::text("€".repeat(40_000))], ..Default::default() };
        assert!(shrink_to_fit(&mut result, 65_536));
        assert!(fits(&result, 65_536));
    }

    #[test]
    fn what_cannot_be_cut_is_named() {
        let image = ContentBlock {
            r#type: ContentBlockType::Image,
            data: Some("A".repeat(100_000)),
            ..ContentBlock::default()
        };
        let mut result = ToolResultParams { content: vec![ContentBlock::text("kept"), image], ..Default::default() };
        assert!(shrink_to_fit(&mut result, 65_536));
        assert_eq!(result.content[0].text.as_deref(), Some("kept"));
        assert!(result.content[1].text.as_deref().unwrap().starts_with("[image block of 100"));
    }

    #[test]
    fn ten_thousand_small_blocks_end_as_a_notice() {
        let mut result = ToolResultParams {
            content: (0..10_000).map(|n| ContentBlock::text(format!("{n}"))).collect(),
            ..Default::default()
        };
        assert!(shrink_to_fit(&mut result, 65_536));
        assert!(fits(&result, 65_536));
    }

    #[test]
    fn what_fits_stays() {
        let mut result = ToolResultParams { content: vec![ContentBlock::text("ok")], ..Default::default() };
        assert!(!shrink_to_fit(&mut result, 65_536));
    }
}

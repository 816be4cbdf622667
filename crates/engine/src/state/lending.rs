//! Pages whose memory is given back while nobody needs them, and taken again.
//!
//! Only groups that keep whole sequences lend: windows and open pages are few. What a sequence of the whole context needs is
//! kept, so that every request that was taken can still be served.

use super::StateManager;
use gannet_ops::{DeviceError, GroupId, PAGE_TOKENS, PageLifetime, State, StateLayout};

/// Pages that are asked for at once where an engine has too few: a few sequences' next thousand tokens.
const PAGES_AT_ONCE: usize = 64;

impl StateManager {
    /// Gives back the memory of pages that nobody runs on, at least `bytes` where there are so many; what the prefix cache
    /// has goes after what is free. A sequence of `context` tokens still fits. Returns the bytes given back.
    pub(crate) fn lend(
        &mut self,
        bytes: u64,
        (layout, context): (&StateLayout, usize),
        device: &mut dyn State,
    ) -> Result<u64, DeviceError> {
        let kept = context.div_ceil(PAGE_TOKENS);
        let mut given = 0;
        for number in 0..self.groups.len() {
            let page_bytes = layout.page_bytes(GroupId(number as u32)) as u64;
            if self.groups[number].lifetime != PageLifetime::Full || page_bytes == 0 {
                continue;
            }
            let mut pages = Vec::new();
            while given < bytes && self.groups[number].pool.total() > kept {
                let Some(page) = self.take_page(number, device)? else { break };
                self.groups[number].pool.give_back(page);
                pages.extend(self.groups[number].pool.lend());
                given += page_bytes;
            }
            device.forget_pages(GroupId(number as u32), &pages)?;
        }
        Ok(given)
    }

    /// Asks for memory for some of the pages that were lent; whether any have memory again.
    pub(crate) fn take_lent(&mut self, layout: &StateLayout, ask: &mut dyn FnMut(u64) -> bool) -> bool {
        let mut is_any = false;
        for (number, group) in self.groups.iter_mut().enumerate() {
            let page_bytes = layout.page_bytes(GroupId(number as u32)) as u64;
            let mut pages = group.pool.lent().min(PAGES_AT_ONCE);
            // Half as many where there is less, so that the last free bytes serve too.
            while pages > 0 && !ask(pages as u64 * page_bytes) {
                pages /= 2;
            }
            group.pool.return_lent(pages);
            is_any |= pages > 0;
        }
        is_any
    }
}

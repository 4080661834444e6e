//! The requests of the other side that wait for our answer.

/// The requests of the other side that are unanswered: slots that are used
/// again, each with a serial number so that an old id finds nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbound {
    slots: Vec<u64>,
    free: Vec<usize>,
    pub(super) open: usize,
    serial: u64,
}

impl Inbound {
    const CLOSED: u64 = 0;

    pub(super) fn open(&mut self) -> (usize, u64) {
        self.open += 1;
        self.serial += 1;
        match self.free.pop() {
            Some(slot) => {
                if let Some(entry) = self.slots.get_mut(slot) {
                    *entry = self.serial;
                }
                (slot, self.serial)
            }
            None => {
                self.slots.push(self.serial);
                (self.slots.len() - 1, self.serial)
            }
        }
    }

    pub(super) fn close(&mut self, slot: usize, serial: u64) -> bool {
        match self.slots.get_mut(slot) {
            Some(entry) if *entry == serial => {
                *entry = Self::CLOSED;
                self.free.push(slot);
                self.open -= 1;
                true
            }
            _ => false,
        }
    }
}

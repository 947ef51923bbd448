//! Which entry has a given prefix key: an open-addressing table with deletion by shifting back.

/// A map from mixed 64-bit keys to entry numbers; its order is never read.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    keys: Vec<u64>,
    values: Vec<u32>,
    used: usize,
    shift: u32,
}

/// An empty place.
const EMPTY: u64 = 0;

impl Index {
    pub(crate) fn new() -> Self {
        Self { keys: vec![EMPTY; 1024], values: vec![0; 1024], used: 0, shift: 64 - 10 }
    }

    fn home(&self, key: u64) -> usize {
        usize::try_from(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift).unwrap_or(0)
    }

    fn find(&self, key: u64) -> Result<usize, usize> {
        let mask = self.keys.len() - 1;
        let mut at = self.home(key);
        loop {
            let here = self.keys[at];
            if here == key {
                return Ok(at);
            }
            if here == EMPTY {
                return Err(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// The entry of `key`.
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        self.find(key).ok().map(|at| self.values[at])
    }

    /// Sets the entry of `key`.
    pub(crate) fn set(&mut self, key: u64, value: u32) {
        match self.find(key) {
            Ok(at) => self.values[at] = value,
            Err(at) => {
                self.keys[at] = key;
                self.values[at] = value;
                self.used += 1;
                if self.used * 2 > self.keys.len() {
                    self.grow();
                }
            }
        }
    }

    /// Takes `key` out.
    pub(crate) fn remove(&mut self, key: u64) {
        let Ok(mut hole) = self.find(key) else { return };
        let mask = self.keys.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.keys[at] == EMPTY {
                break;
            }
            // An entry may move back only as far as its home.
            let distance = at.wrapping_sub(self.home(self.keys[at])) & mask;
            if distance >= (at.wrapping_sub(hole) & mask) {
                self.keys[hole] = self.keys[at];
                self.values[hole] = self.values[at];
                hole = at;
            }
        }
        self.keys[hole] = EMPTY;
        self.used -= 1;
    }

    fn grow(&mut self) {
        let size = self.keys.len() * 2;
        let keys = std::mem::replace(&mut self.keys, vec![EMPTY; size]);
        let values = std::mem::replace(&mut self.values, vec![0; size]);
        self.shift -= 1;
        for (key, value) in keys.into_iter().zip(values) {
            if key != EMPTY
                && let Err(at) = self.find(key)
            {
                self.keys[at] = key;
                self.values[at] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Index;

    #[test]
    fn keeps_what_a_slow_map_keeps() {
        let mut fast = Index::new();
        let mut slow = std::collections::BTreeMap::new();
        let mut state = 1_u64;
        for step in 0..200_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (state >> 40) % 3000 + 1;
            if state & 3 == 0 {
                fast.remove(key);
                slow.remove(&key);
            } else {
                fast.set(key, step);
                slow.insert(key, step);
            }
            assert_eq!(fast.get(key), slow.get(&key).copied());
        }
        for key in 1..=3000 {
            assert_eq!(fast.get(key), slow.get(&key).copied());
        }
    }
}

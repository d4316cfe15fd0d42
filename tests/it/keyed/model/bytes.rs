//! Scripts from bytes, for the fuzz target and the replay of its corpus. Any bytes are a script.

use std::time::Duration;

use super::ops::{Op, Setup};
use crate::support::script_time::Span;

const TICKS_IN_MICROS: [u64; 6] = [1000, 1, 250, 1001, 10_000, 1_000_000];

/// The greatest length of a script. Every bug so far needed fewer steps.
const MOST_STEPS: usize = 400;

/// The wheel and the script that the bytes spell.
pub(crate) fn decode(bytes: &[u8]) -> (Setup, Vec<Op>) {
    let mut bytes = Bytes(bytes);
    let setup = bytes.setup();
    let script = std::iter::from_fn(|| bytes.op()).take(MOST_STEPS).collect();
    (setup, script)
}

/// The rest of a script. Operations and keys are one byte each, spans two.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Three bytes: tick and limit, slots, offset.
    fn setup(&mut self) -> Setup {
        let kind = usize::from(self.next().unwrap_or(0));
        let slots = self.next().unwrap_or(0);
        let offset = self.next().unwrap_or(0);
        Setup {
            tick: Duration::from_micros(TICKS_IN_MICROS[kind % 6]),
            // Smaller wheels cascade more often.
            slots: match slots % 16 {
                wide @ 12..=15 => 1 << (wide - 3),
                narrow => 2 << (narrow % 4),
            },
            offset: Duration::from_nanos(u64::from(offset) * 11_719),
            max_keyed: (kind / 6 % 4 == 3).then_some(1 + kind / 24 % 4),
        }
    }

    fn ticks(&mut self) -> Option<Span> {
        let ticks = match self.next()? {
            small @ 0..=95 => u64::from(small),
            border @ 96..=215 => (1 << ((border - 96) % 40)) - 1 + u64::from((border - 96) / 40),
            high => u64::from(high) * u64::from(self.next()?),
        };
        Some(Span::Ticks(ticks, 0))
    }

    fn span(&mut self) -> Option<Span> {
        Some(match self.next()? {
            0..=159 => self.ticks()?,
            160..=207 => {
                let Span::Ticks(ticks, _) = self.ticks()? else {
                    return None;
                };
                Span::Ticks(ticks, self.next()? % 8)
            }
            208..=222 => Span::ToEarliest(-1),
            223..=235 => Span::ToEarliest(0),
            236..=247 => Span::ToEarliest(1),
            248.. => Span::Far(self.next()?),
        })
    }

    fn key(&mut self) -> Option<u8> {
        Some(self.next()? % 6)
    }

    fn op(&mut self) -> Option<Op> {
        let kind = self.next()?;
        Some(match kind % 40 {
            _ if kind >= 248 => Op::Stall(self.advance()?),
            _ if kind >= 244 => Op::Flood(u16::from(self.next()?).pow(2) / 16, self.span()?),
            _ if kind >= 240 => Op::ReadFlood(self.next()?.into()),
            0..=6 => Op::Set(self.key()?, self.span()?),
            7 | 8 => Op::SetAt(self.key()?, self.span()?),
            9 => Op::SetPast(self.key()?, self.past()?),
            10 | 11 => Op::SetInterval(self.key()?, self.span()?),
            12..=16 => Op::Move(self.key()?, self.span()?),
            17 | 18 => Op::MoveAt(self.key()?, self.span()?),
            19 => Op::MovePast(self.key()?, self.past()?),
            20..=23 => Op::Remove(self.key()?),
            24 => Op::Deadline(self.key()?),
            25 => Op::Drain,
            26..=29 => Op::Advance(self.advance()?),
            30 | 31 => Op::Settle,
            32 => Op::Yield,
            33 | 34 => Op::Recv,
            35 => Op::TryRecv,
            36 => Op::RecvMany(self.next()? % 5),
            37 => Op::Unexpired,
            38 => Op::CloneHandle,
            _ => match self.next()? % 4 {
                0 => Op::DropStream,
                1 => Op::Shutdown,
                _ => Op::DropHandle,
            },
        })
    }

    /// A span into the past, up to the oldest deadline that can be represented.
    fn past(&mut self) -> Option<Span> {
        Some(match self.ticks()? {
            Span::Ticks(ticks, eighths) => Span::Ticks(ticks % (1 << 20), eighths),
            other => other,
        })
    }

    /// A jump of the clock, but not to the end of time, after which no timer would fire.
    fn advance(&mut self) -> Option<Span> {
        let span = self.span()?;
        Some(match span {
            Span::Ticks(ticks, eighths) => Span::Ticks(ticks % (1 << 24), eighths),
            Span::Far(n) => Span::Ticks(u64::from(n), 0),
            Span::ToEarliest(_) => span,
        })
    }
}

//! What an instance sends in a run, and what it learns from the answer.

use std::time::Duration;

use tickwheel_durable::store::{
    Action, Continuity, Due, Fire, InstanceId, LeftRow, Load, Missed, NextOccurrence, Plan,
    Scheduled, Schedules, Settled, Settlement, StoreTime, Terms, Version, Write, WriteOutcome,
};

use super::instance::{Claim, Instance, Outcome, Request, SCHEDULE};
use super::run::Run;
use super::step::{Call, Delay, Key, Settling, key_bytes};

impl Run {
    /// What an instance sends. `None` if it would send nothing.
    pub(super) async fn request(&mut self, by: usize, call: Call) -> Option<Request> {
        let now = self.now().await;
        self.sent_at = now;
        // Each set has another value.
        self.sets += u32::from(call.sets_in().is_some());
        let instance = &self.instances[by];
        let terms = Terms::new(self.unit, Some(instance.id)).under(instance.edition);
        let write = |key: Key, action| {
            let write = Write::new(key_bytes(key), action);
            Request::Write(vec![write], terms)
        };
        let due = |delay| self.due(delay, now);
        let set = |delay, period, if_absent| {
            Action::set(self.last_value(), due(delay), period, if_absent)
        };
        let fire = |named: Vec<Version>, unloaded| {
            let plan = |version| instance.plans.get(version).copied();
            let plans = named.iter().filter_map(plan).collect();
            let lease = (!self.bounds.charter.at_most_once).then_some(self.lease());
            let mut fire = Fire::new(named, lease, terms);
            (fire.unloaded, fire.by, fire.plans) = (unloaded, Some(instance.id), plans);
            (fire.missed, fire.no_overlap) = (self.bounds.missed, self.bounds.charter.no_overlap);
            fire.schedules = self.schedules(by);
            Request::Fire(fire)
        };
        let load = |limit| {
            let mut load = Load::new(instance.id, self.unit, limit, self.halves(5));
            (load.edition, load.schedules) = (instance.edition, self.schedules(by));
            load.last = instance.last;
            Request::Load(load)
        };
        let request = match call {
            _ if call.fires() && !instance.lost_fires.is_empty() => {
                let held = instance.claims.iter().map(|claim| claim.token).collect();
                Request::Unfire(instance.lost_fires.clone(), held, terms)
            }
            Call::Fire if instance.due(now).is_empty() => return None,
            Call::Fire => fire(instance.due(now), 0),
            Call::FireBoth => fire(instance.due(now), 2),
            Call::FireEarly => {
                let mut rows = instance.in_order().into_iter();
                fire(vec![rows.find(|(due, _)| *due > now)?.1], 0)
            }
            Call::FireUnloaded => fire(Vec::new(), 1),
            Call::Load if instance.must_unload => Request::Unload(instance.id),
            Call::Load if !instance.unknown.is_empty() => {
                Request::Unmark(instance.id, instance.unknown.iter().copied().collect())
            }
            Call::Load => load(8),
            Call::LoadOne if instance.must_unload || !instance.unknown.is_empty() => return None,
            Call::LoadOne => load(1),
            Call::Unmark => {
                let (_, earliest) = *instance.in_order().first()?;
                Request::Unmark(instance.id, vec![earliest])
            }
            Call::Settle(how) => {
                let claim = instance.claims.first()?;
                if claim.unanswered.is_some_and(|before| before != how) {
                    return None;
                }
                Request::Settle(vec![(claim.token, how)], terms)
            }
            Call::Move(key, delay) => write(key, Action::move_to(due(delay))),
            Call::Remove(key) => write(key, Action::Remove),
            Call::Set(key, delay) => write(key, set(delay, None, false)),
            Call::SetIfAbsent(key, delay) => write(key, set(delay, None, true)),
            Call::SetInterval(key, delay) => write(key, set(delay, Some(self.unit), false)),
            Call::SetCron(key, delay) => {
                let schedule = SCHEDULE.to_owned();
                write(
                    key,
                    Action::set_scheduled(self.last_value(), due(delay), schedule),
                )
            }
        };
        if let Request::Fire(fire) = &request {
            self.named.clone_from(&fire.versions);
        }
        Some(request)
    }

    fn schedules(&self, by: usize) -> Schedules {
        if self.bounds.has_calendar(by) {
            Schedules::ALL
        } else {
            Schedules::AllBut(vec![SCHEDULE.to_owned()])
        }
    }

    pub(super) fn settlement(&self, how: Settling, by: InstanceId) -> Settlement {
        match how {
            Settling::Ack => Settlement::Ack,
            Settling::Release => Settlement::Release,
            Settling::Retry => Settlement::RetryAfter(self.halves(1)),
            Settling::Unfire => Settlement::Unfire,
            Settling::Extend => Settlement::Extend(self.lease()),
            Settling::Lapse => Settlement::Extend(Duration::ZERO),
            Settling::Leave => Settlement::Leave(LeftRow::new(by, self.halves(1), self.lease())),
            Settling::Dead => Settlement::Dead,
        }
    }

    fn due(&self, delay: Delay, now: StoreTime) -> Due {
        match delay {
            Delay::Past => Due::At(now.before(self.halves(5))),
            Delay::Zero => Due::In(Duration::ZERO),
            Delay::Near => Due::In(self.halves(1)),
            Delay::Far => Due::In(self.halves(3)),
        }
    }

    /// What the instance learns from an answer, or from having none.
    pub(super) fn learn(&mut self, by: usize, request: &Request, outcome: Option<&Outcome>) {
        let (lease, sent_at, claims) = (
            self.lease(),
            self.sent_at,
            !self.bounds.charter.at_most_once,
        );
        let instance = &mut self.instances[by];
        let off_wheel = match request {
            Request::Fire(fire) => &fire.versions[..],
            Request::Unmark(_, versions) => versions,
            _ => &[],
        };
        for version in off_wheel {
            instance.wheel.remove(version);
            instance.plans.remove(version);
            instance.unknown.remove(version);
        }
        if let Request::Unload(_) = request {
            instance.wheel.clear();
            instance.unknown.clear();
        }
        let Some(outcome) = outcome else {
            instance.learn_nothing(request, claims);
            return;
        };
        match outcome {
            Outcome::Written(written) => {
                for written in written {
                    match written {
                        WriteOutcome::Armed { row, replaced, .. } => {
                            replaced.and_then(|version| instance.wheel.remove(&version));
                            instance.arm(*row);
                        }
                        WriteOutcome::Removed { version, .. } => {
                            instance.wheel.remove(version);
                        }
                        _ => {}
                    }
                }
            }
            Outcome::Loaded(loaded) => {
                instance.is_unaware = false;
                instance.last = Some(loaded.receipt);
                instance.must_unload |= loaded.continuity != Continuity::Kept;
                instance.wheel.extend(loaded.rows.iter().copied());
                self.tell(by, &loaded.scheduled, loaded.now);
            }
            Outcome::Unloaded(fresh) => {
                (instance.id, instance.must_unload, instance.last) = (*fresh, false, None);
            }
            Outcome::Fired(report) => {
                for row in report.later.iter().chain(&report.next) {
                    instance.arm(*row);
                }
                for fired in report.fired.iter().filter(|_| claims) {
                    instance.claims.push(Claim {
                        token: fired.token,
                        value: fired.value.clone(),
                        until: report.now.after(lease),
                        unanswered: None,
                    });
                }
                self.tell(by, &report.scheduled, report.now);
            }
            Outcome::Settled(settled) => {
                if let Request::Unfire(..) = request {
                    instance.lost_fires.clear();
                }
                for &(token, how, settled) in settled {
                    if let Settled::Armed(row) = settled {
                        instance.arm(row);
                    }
                    match (how, settled) {
                        (Settling::Extend, Settled::Done) => {
                            instance.claims[0].until = sent_at.after(lease);
                        }
                        (Settling::Lapse, Settled::Done) => {
                            instance.claims[0].until = StoreTime::default();
                        }
                        _ => instance.claims.retain(|claim| claim.token != token),
                    }
                }
            }
            _ => {}
        }
    }

    /// The store tells the schedules of rows that are loaded.
    fn tell(&mut self, by: usize, scheduled: &[Scheduled], now: StoreTime) {
        let (missed, unit) = (self.bounds.missed, self.unit);
        let knows = self.bounds.has_calendar(by);
        let instance = &mut self.instances[by];
        for row in scheduled {
            if knows {
                let plan = plan(row, missed, unit, now);
                instance.plans.insert(row.version, plan);
            } else {
                instance.unknown.insert(row.version);
            }
        }
    }
}

impl Instance {
    /// There is no answer: the request may have reached the store or not. Fires make claims unless
    /// the charter delivers at most once.
    fn learn_nothing(&mut self, request: &Request, claims: bool) {
        self.must_unload = true;
        match request {
            Request::Fire(fire) if claims => self.lost_fires.extend(fire.by),
            Request::Settle(settles, _) => {
                let (_, how) = settles[0];
                let claim = &mut self.claims[0];
                match how {
                    Settling::Extend => {}
                    // It may have ended the lease, so it does not count on it.
                    Settling::Lapse => claim.until = StoreTime::default(),
                    _ => claim.unanswered = Some(how),
                }
            }
            _ => {}
        }
    }
}

/// How a row repeats if it fires before the schedule has another time.
fn plan(row: &Scheduled, missed: Missed, unit: Duration, now: StoreTime) -> Plan {
    let (mut last, mut passed) = (row.deadline, 0);
    while last.after(unit) <= now {
        (last, passed) = (last.after(unit), passed + 1);
    }
    let until = last.after(unit);
    let next = match missed {
        Missed::FireAll => NextOccurrence::new(true, 0, row.deadline.after(unit)),
        Missed::FireOnce => NextOccurrence::new(true, passed, until),
        _ => NextOccurrence::new(passed == 0, 0, until),
    };
    let from = if passed == 0 {
        StoreTime::default()
    } else {
        last
    };
    Plan::new(row.version, from, until, next)
}

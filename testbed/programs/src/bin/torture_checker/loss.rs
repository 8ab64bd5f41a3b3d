//! A loss is final, told, and learnt in time.

use crate::history::{Hold, Record, State};
use crate::violation::Violation;

pub(crate) fn violations(record: &Record) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((process, id), hold) in &record.holds {
        let name = format!("{} id={id}", hold.thread);
        let mut violate = |kind, story| violations.push(Violation::new(kind, story));
        let mut looks = hold.looks.iter();
        let is_lost = looks.any(|look| look.state == State::Lost);
        if is_lost && looks.any(|look| look.state != State::Lost) {
            violate("held again", format!("{name} was lost and held again"));
        }
        let mut looks = hold.looks.iter().filter(|look| look.state != State::Lost);
        if hold
            .told
            .is_some_and(|told| looks.any(|look| look.began > told))
        {
            violate(
                "held again",
                format!("{name} was told of its loss and held on"),
            );
        }
        if hold.is_untold {
            let story = format!("{name} knew of its loss and was not told");
            violate("loss not told", story);
        }
        if let Some(late) = held_after_removal(record, process, hold) {
            let story = format!("{name} held at {late}, long after its node was removed");
            violate("removal not learnt", story);
        }
    }
    violations
}

/// When it was last seen to hold though it should have learnt that its node was removed: at the
/// latest when the session of that time could be over.
fn held_after_removal(record: &Record, process: &str, hold: &Hold) -> Option<u64> {
    let removals = record
        .removals
        .iter()
        .filter(|removal| removal.node == hold.node);
    let removed = removals.filter_map(|removal| removal.confirmed).min()?;
    let last = hold
        .looks
        .iter()
        .filter(|look| look.state == State::Held)
        .map(|look| look.began)
        .max()?;
    let process = record.processes.get(process)?;
    let awake = last
        .saturating_sub(removed)
        .saturating_sub(process.stopped_between(removed, last));
    (awake > record.terms.session + record.terms.slack).then_some(last)
}

#[cfg(test)]
mod tests {
    use crate::wrong_with;

    #[test]
    fn nobody_holds_again_what_was_lost() {
        let lost = "2950 w0.0.0 look id=1 state=lost began=2850\n3000 w0.0.0 look";
        let wrong = wrong_with(&[("3000 w0.0.0 look", lost)]);
        assert_eq!(wrong, ["w0.0.0 id=1 was lost and held again"]);
    }

    #[test]
    fn nobody_holds_on_who_was_told() {
        let told = "2500 w0.0.0 told id=1 why=Session\n3000 w0.0.0 look";
        let wrong = wrong_with(&[("3000 w0.0.0 look", told)]);
        assert_eq!(wrong, ["w0.0.0 id=1 was told of its loss and held on"]);
        let then_lost = [
            ("3000 w0.0.0 look", told),
            ("state=held began=2900", "state=lost began=2900"),
        ];
        assert!(wrong_with(&then_lost).is_empty());
    }

    #[test]
    fn a_known_loss_must_be_told() {
        let untold = "3050 w0.0.0 untold id=1\n3100 w0.0.0 give";
        let wrong = wrong_with(&[("3100 w0.0.0 give", untold)]);
        assert_eq!(wrong, ["w0.0.0 id=1 knew of its loss and was not told"]);
    }

    #[test]
    fn a_removal_must_be_learnt() {
        let removal = "2200 nemesis remove node=/l/a\n2300 nemesis removed node=/l/a\n";
        let late =
            "2000005000 w0.0.0 look id=1 state=held began=2000003000\n2000005001 w0.0.0 give";
        let with_removal = format!("{removal}3000 w0.0.0 look");
        let changes = [
            ("3000 w0.0.0 look", with_removal.as_str()),
            ("3100 w0.0.0 give", late),
            ("3200 w0.0.0", "2000005002 w0.0.0"),
        ];
        let wrong = wrong_with(&changes);
        assert_eq!(
            wrong,
            ["w0.0.0 id=1 held at 2000003000, long after its node was removed"]
        );
        let stopped = format!(
            "{removal}2400 nemesis stop process=w0.0\n2000000000 nemesis cont process=w0.0\n3000 w0.0.0 look"
        );
        assert!(wrong_with(&[("3000 w0.0.0 look", &stopped), changes[1], changes[2]]).is_empty());
    }
}

//! The ways of a holder's client to the servers.

use testbed::{Direction, Proxy};

use super::Servers;

/// Which servers a holder can reach once the trouble has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only the one that is in trouble: the holder is on its side of the partition.
    Side,
    /// All.
    All,
}

impl Reach {
    pub const ALL: [Reach; 2] = [Reach::Side, Reach::All];
}

/// A proxy before each server, for the clients of holders with one reach.
#[derive(Debug)]
pub(super) struct Doors {
    seat: usize,
    reach: Reach,
    doors: Vec<Proxy>,
}

impl Doors {
    /// Doors of which only the one to the seat is open, so that clients sit down there.
    pub(super) fn before(servers: &Servers, seat: usize, reach: Reach) -> Doors {
        let doors: Vec<Proxy> = (0..servers.size())
            .map(|index| Proxy::start(servers.address(index)))
            .collect();
        let doors = Doors { seat, reach, doors };
        doors.others().for_each(Proxy::refuse);
        doors
    }

    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    pub(super) fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.doors.iter().map(Proxy::connect_string).collect();
        addresses.join(",")
    }

    /// Opens the other doors, or lets them swallow what comes, as the reach is.
    pub(super) fn take_side(&self) {
        for door in self.others() {
            if self.reach == Reach::Side {
                door.black_hole(Direction::Both);
            }
            door.accept();
        }
    }

    pub(super) fn mend(&self) {
        self.doors.iter().for_each(Proxy::pass);
    }

    fn others(&self) -> impl Iterator<Item = &Proxy> {
        let numbered = self.doors.iter().enumerate();
        numbered
            .filter(|(index, _)| *index != self.seat)
            .map(|(_, door)| door)
    }
}

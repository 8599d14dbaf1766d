//! The machine's own clock, for schedules: they follow its time of day and its time zone.

use jiff::Zoned;

pub(crate) fn local_now() -> Zoned {
    Zoned::now()
}

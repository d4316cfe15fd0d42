//! The code that the pages in this folder show: each before and after the move to tickwheel.

pub mod delay_queue {
    pub mod after;
    pub mod before;
}

pub mod hashed_wheels {
    pub mod after;
}

pub mod moka {
    pub mod after;
    pub mod before;
}

pub mod pingora_timeout {
    pub mod after;
    pub mod before;
}

pub mod sorted_map {
    pub mod after;
    pub mod before;
}

pub mod tokio_cron_scheduler {
    pub mod after;
    pub mod before;
}

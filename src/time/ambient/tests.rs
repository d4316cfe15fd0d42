//! What a trusted slot says. The tests of the whole do not get here, because their clock can be paused.

//! The services as programs, under clients that have nothing to do with the wheel.

mod chat;
mod examples;
mod quic_echo;

//! The hosts of a configuration, each with its own configuration.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::store::StoreError;

/// How many hosts there are, by name or by address.
pub(super) fn count(config: &Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

/// A configuration for each host. Whether a host accepts writes is asked in any case, so none of
/// them says so.
pub(super) fn split(config: &Config) -> Result<Vec<Config>, StoreError> {
    let (names, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
    let (hosts, ports) = (count(config), config.get_ports().len());
    if hosts == 0 {
        return Err(StoreError::refused(
            "the PostgreSQL settings name no host: host=localhost, or host=/var/run/postgresql",
        ));
    }
    if names > 0 && addresses > 0 && names != addresses {
        let message = format!(
            "the PostgreSQL settings have host {names} times and hostaddr {addresses} times"
        );
        return Err(StoreError::refused(message));
    }
    if ports > 1 && ports != hosts {
        let message = format!("the PostgreSQL settings have {ports} ports for {hosts} hosts");
        return Err(StoreError::refused(message));
    }
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        return Err(StoreError::refused(
            "the PostgreSQL settings have target_session_attrs=read-only, and a store writes: leave it out",
        ));
    }
    Ok((0..hosts).map(|number| only(config, number)).collect())
}

/// The same configuration with one of its hosts. The client has no way to take hosts out.
fn only(config: &Config, number: usize) -> Config {
    let mut only = Config::new();
    if let Some(user) = config.get_user() {
        only.user(user);
    }
    if let Some(password) = config.get_password() {
        only.password(password);
    }
    if let Some(name) = config.get_dbname() {
        only.dbname(name);
    }
    if let Some(options) = config.get_options() {
        only.options(options);
    }
    if let Some(name) = config.get_application_name() {
        only.application_name(name);
    }
    match config.get_hosts().get(number) {
        Some(Host::Tcp(name)) => {
            only.host(name);
        }
        #[cfg(unix)]
        Some(Host::Unix(path)) => {
            only.host_path(path);
        }
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(number) {
        only.hostaddr(*address);
    }
    let ports = config.get_ports();
    if let Some(port) = ports.get(number).or(ports.first()) {
        only.port(*port);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        only.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        only.tcp_user_timeout(*timeout);
    }
    only.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        only.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        only.keepalives_retries(retries);
    }
    only.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All settings that the client knows.
    const ALL: &str = "user=me password=s3cret dbname=orders options=-cgeqo=off application_name=shop sslmode=require \
        sslnegotiation=direct connect_timeout=7 tcp_user_timeout=8 keepalives=0 keepalives_idle=9 keepalives_interval=10 \
        keepalives_retries=11 channel_binding=require load_balance_hosts=random";

    fn parse(text: &str) -> Config {
        text.parse().expect(text)
    }

    #[test]
    fn each_host_keeps_all_settings() {
        let all = format!(
            "{ALL} host=one,/run,three hostaddr=127.0.0.1,127.0.0.2,127.0.0.3 port=1,,3 target_session_attrs=read-write"
        );
        let hosts = [
            "host=one hostaddr=127.0.0.1 port=1",
            "host=/run hostaddr=127.0.0.2 port=5432",
            "host=three hostaddr=127.0.0.3 port=3",
        ];
        let hosts: Vec<_> = hosts
            .iter()
            .map(|host| parse(&format!("{ALL} {host}")))
            .collect();
        assert_eq!(split(&parse(&all)), Ok(hosts));
    }

    #[test]
    fn hosts_share_one_port() {
        let hosts = split(&parse("host=one,two port=6432")).expect("there are two");
        let ports: Vec<_> = hosts.iter().map(Config::get_ports).collect();
        assert_eq!(ports, [[6432], [6432]]);
    }

    #[test]
    fn settings_that_cannot_be_met_are_refused() {
        for (text, says) in [
            ("user=me", "name no host"),
            (
                "host=a,b hostaddr=127.0.0.1",
                "host 2 times and hostaddr 1 times",
            ),
            ("host=a,b,c port=1,2", "2 ports for 3 hosts"),
            (
                "host=a,b target_session_attrs=read-only",
                "target_session_attrs=read-only",
            ),
        ] {
            let error = split(&parse(text)).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

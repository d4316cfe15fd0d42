//! The calls that a store which stands before another one passes on.

/// Writes the calls that every store has, but for `load`, `fire` and `inspect`, as those of the
/// store that a method has for the namespace. The file that invokes it imports the types of the
/// calls.
macro_rules! pass_on {
    ($store:ident) => {
        fn open<'a>(
            &'a self,
            namespace: &'a Namespace,
            charter: &'a Charter,
        ) -> Answer<'a, Opened> {
            self.$store(namespace).open(namespace, charter)
        }
        fn amend<'a>(&'a self, namespace: &'a Namespace, charter: &'a Charter) -> Answer<'a, ()> {
            self.$store(namespace).amend(namespace, charter)
        }
        fn write<'a>(
            &'a self,
            namespace: &'a Namespace,
            writes: Vec<Write>,
            near: LoadWindow,
        ) -> Answer<'a, Vec<WriteOutcome>> {
            self.$store(namespace).write(namespace, writes, near)
        }
        fn settle<'a>(
            &'a self,
            namespace: &'a Namespace,
            settles: Vec<Settle>,
            near: LoadWindow,
        ) -> Answer<'a, Vec<Settled>> {
            self.$store(namespace).settle(namespace, settles, near)
        }
        fn unload<'a>(
            &'a self,
            namespace: &'a Namespace,
            instance: InstanceId,
        ) -> Answer<'a, InstanceId> {
            self.$store(namespace).unload(namespace, instance)
        }
        fn unmark<'a>(
            &'a self,
            namespace: &'a Namespace,
            instance: InstanceId,
            versions: Vec<Version>,
        ) -> Answer<'a, Vec<Version>> {
            self.$store(namespace).unmark(namespace, instance, versions)
        }
        fn rows_of<'a>(
            &'a self,
            namespace: &'a Namespace,
            key: Vec<u8>,
            limit: usize,
        ) -> Answer<'a, Vec<Stored>> {
            self.$store(namespace).rows_of(namespace, key, limit)
        }
        fn list<'a>(&'a self, namespace: &'a Namespace, request: List) -> Answer<'a, Vec<Stored>> {
            self.$store(namespace).list(namespace, request)
        }
        fn count<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, Counts> {
            self.$store(namespace).count(namespace)
        }
        fn purge<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, ChangedRows> {
            self.$store(namespace).purge(namespace)
        }
        fn change_dead<'a>(
            &'a self,
            namespace: &'a Namespace,
            which: DeadRows,
            change: DeadChange,
        ) -> Answer<'a, ChangedRows> {
            self.$store(namespace).change_dead(namespace, which, change)
        }
        fn hinted<'a>(&'a self, namespace: &'a Namespace) -> BoxFuture<'a, ()> {
            self.$store(namespace).hinted(namespace)
        }
    };
}

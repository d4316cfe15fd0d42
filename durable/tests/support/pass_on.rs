//! The calls that a store which stands before another one passes on.

/// Writes the calls that every store has, but for `load`, `fire` and `inspect`, as those of the
/// store that a method has for the namespace. The file that invokes it imports the types of the
/// calls.
macro_rules! pass_on {
    ($store:ident) => {
        fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened> {
            self.$store(namespace).open(namespace, charter)
        }
        fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()> {
            self.$store(namespace).amend(namespace, charter)
        }
        fn write(
            &self,
            namespace: &Namespace,
            writes: Vec<Write>,
            near: Terms,
        ) -> Answer<'_, Vec<WriteOutcome>> {
            self.$store(namespace).write(namespace, writes, near)
        }
        fn settle(
            &self,
            namespace: &Namespace,
            settles: Vec<Settle>,
            near: Terms,
        ) -> Answer<'_, Vec<Settled>> {
            self.$store(namespace).settle(namespace, settles, near)
        }
        fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId> {
            self.$store(namespace).unload(namespace, instance)
        }
        fn unmark(
            &self,
            namespace: &Namespace,
            instance: InstanceId,
            versions: Vec<Version>,
        ) -> Answer<'_, Vec<Version>> {
            self.$store(namespace).unmark(namespace, instance, versions)
        }
        fn rows_of(
            &self,
            namespace: &Namespace,
            key: Vec<u8>,
            limit: usize,
        ) -> Answer<'_, Vec<Stored>> {
            self.$store(namespace).rows_of(namespace, key, limit)
        }
        fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>> {
            self.$store(namespace).list(namespace, request)
        }
        fn count(&self, namespace: &Namespace) -> Answer<'_, Counts> {
            self.$store(namespace).count(namespace)
        }
        fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows> {
            self.$store(namespace).purge(namespace)
        }
        fn change_dead(
            &self,
            namespace: &Namespace,
            which: DeadRows,
            change: DeadChange,
        ) -> Answer<'_, ChangedRows> {
            self.$store(namespace).change_dead(namespace, which, change)
        }
        fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, Option<InstanceId>> {
            self.$store(namespace).hinted(namespace)
        }
    };
}

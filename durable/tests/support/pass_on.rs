//! The calls that a store which stands before another one passes on.

/// Writes the calls that every store has, but for `load` and `fire`, as those of the store in a
/// field. The file that invokes it imports the types of the calls.
macro_rules! pass_on {
    ($field:tt) => {
        fn open<'a>(
            &'a self,
            namespace: &'a Namespace,
            charter: &'a Charter,
        ) -> Answer<'a, Opened> {
            self.$field.open(namespace, charter)
        }
        fn amend<'a>(&'a self, namespace: &'a Namespace, charter: &'a Charter) -> Answer<'a, ()> {
            self.$field.amend(namespace, charter)
        }
        fn write<'a>(
            &'a self,
            namespace: &'a Namespace,
            writes: Vec<Write>,
            near: LoadWindow,
        ) -> Answer<'a, Vec<WriteOutcome>> {
            self.$field.write(namespace, writes, near)
        }
        fn settle<'a>(
            &'a self,
            namespace: &'a Namespace,
            settles: Vec<Settle>,
            near: LoadWindow,
        ) -> Answer<'a, Vec<Settled>> {
            self.$field.settle(namespace, settles, near)
        }
        fn unload<'a>(
            &'a self,
            namespace: &'a Namespace,
            instance: InstanceId,
        ) -> Answer<'a, InstanceId> {
            self.$field.unload(namespace, instance)
        }
        fn unmark<'a>(
            &'a self,
            namespace: &'a Namespace,
            instance: InstanceId,
            versions: Vec<Version>,
        ) -> Answer<'a, Vec<Version>> {
            self.$field.unmark(namespace, instance, versions)
        }
        fn get<'a>(&'a self, namespace: &'a Namespace, key: Vec<u8>) -> Answer<'a, Option<Stored>> {
            self.$field.get(namespace, key)
        }
        fn list<'a>(&'a self, namespace: &'a Namespace, request: List) -> Answer<'a, Vec<Stored>> {
            self.$field.list(namespace, request)
        }
        fn count<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, Counts> {
            self.$field.count(namespace)
        }
        fn purge<'a>(&'a self, namespace: &'a Namespace) -> Answer<'a, ChangedRows> {
            self.$field.purge(namespace)
        }
        fn change_dead<'a>(
            &'a self,
            namespace: &'a Namespace,
            which: DeadRows,
            change: DeadChange,
        ) -> Answer<'a, ChangedRows> {
            self.$field.change_dead(namespace, which, change)
        }
        fn inspect(&self) -> &dyn Inspect {
            self.$field.inspect()
        }
        fn hinted<'a>(&'a self, namespace: &'a Namespace) -> BoxFuture<'a, ()> {
            self.$field.hinted(namespace)
        }
    };
}

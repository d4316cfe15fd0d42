//! `Debug` of types that say what they belong to, and little of what they hold.

/// Implements `Debug` for a type: these fields, and a sign that there are more.
macro_rules! opaque {
    ($type:ident $(<$($parameter:tt),+>)?, |$this:ident| $($name:ident: $field:expr),+) => {
        impl$(<$($parameter),+>)? std::fmt::Debug for $type$(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($name), &$field))+
                    .finish_non_exhaustive()
            }
        }
    };
}

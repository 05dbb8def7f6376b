//! Enums whose values have fixed names, in the protocol or in the index.

/// Defines an enum whose values have fixed names.
///
/// It gets `ALL`, every value in this order, the function `name`, and the function
/// `parse`, which finds the value with a name.
///
/// ```
/// keepsake_core::named_enum! {
///     /// The state of a lamp.
///     #[derive(Debug, Clone, Copy, PartialEq)]
///     pub enum Lamp {
///         On = "on",
///         Off = "off",
///     }
/// }
///
/// assert_eq!(Lamp::parse("off"), Some(Lamp::Off));
/// assert_eq!(Lamp::ALL.map(Lamp::name), ["on", "off"]);
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$of_value:meta])* $value:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $enum {
            $($(#[$of_value])* #[doc = concat!("`", $name, "`")] $value,)+
        }

        impl $enum {
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            $visibility fn parse(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}

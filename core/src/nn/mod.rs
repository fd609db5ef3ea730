//! Layers, losses, metrics, optimizers and schedules, with Keras's names.

pub mod layers;
pub mod losses;
pub mod metrics;
pub mod optimizers;
pub mod schedules;

/// Returns the name of a type, without its path and generic parameters.
pub(crate) fn type_name<T: ?Sized>() -> &'static str {
    let name = core::any::type_name::<T>();
    let name = name.split_once('<').map_or(name, |(name, _)| name);
    name.rsplit_once("::").map_or(name, |(_, name)| name)
}

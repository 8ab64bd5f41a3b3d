//! Together with other implementations in the same folders.

mod curator;
mod home_grown;
mod kazoo;
mod three_languages;

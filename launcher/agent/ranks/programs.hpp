#pragma once
// Where the other programs of this installation are.
#include <filesystem>
#include <string>

namespace holdfast::launcher {

/// The absolute path of this program itself, as the kernel knows it; of the installed one when this is a copy
/// that is gone.
std::filesystem::path this_program();
/// To be called before a copy of this program goes on in its place.
void name_installed_program();
/// The same for python_folder(), of which there is no copy: before agents start, who must not look for it.
void name_python_folder();
/// As it was named; empty: there is none.
std::string named_python_folder();
/// A program of ours (holdfast-tool, holdfast-train): beside this one when installed, else in the build tree.
/// Throws Error.
std::filesystem::path find_program(const std::string& name);

}  // namespace holdfast::launcher

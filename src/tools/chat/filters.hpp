#pragma once
// The filters by name; the table is in filters.cpp.
#include "src/tools/chat/builtins.hpp"

namespace holdfast::chat::filters {

/// What "a.b.0", or an integer, names in `of`: how filters spell an attribute.
Value path_of(const Value& of, const Value& path);

Value trim(const Value& of, Arguments& arguments, Rendering& rendering);
Value string(const Value& of, Arguments& arguments, Rendering& rendering);
Value upper(const Value& of, Arguments& arguments, Rendering& rendering);
Value lower(const Value& of, Arguments& arguments, Rendering& rendering);
Value capitalize(const Value& of, Arguments& arguments, Rendering& rendering);
Value title(const Value& of, Arguments& arguments, Rendering& rendering);
Value replace(const Value& of, Arguments& arguments, Rendering& rendering);
Value indent(const Value& of, Arguments& arguments, Rendering& rendering);
Value join(const Value& of, Arguments& arguments, Rendering& rendering);
Value tojson(const Value& of, Arguments& arguments, Rendering& rendering);

Value map(const Value& of, Arguments& arguments, Rendering& rendering);
Value select(const Value& of, Arguments& arguments, Rendering& rendering);
Value reject(const Value& of, Arguments& arguments, Rendering& rendering);
Value selectattr(const Value& of, Arguments& arguments, Rendering& rendering);
Value rejectattr(const Value& of, Arguments& arguments, Rendering& rendering);
Value unique(const Value& of, Arguments& arguments, Rendering& rendering);
Value sort(const Value& of, Arguments& arguments, Rendering& rendering);
Value dictsort(const Value& of, Arguments& arguments, Rendering& rendering);
Value reverse(const Value& of, Arguments& arguments, Rendering& rendering);

}  // namespace holdfast::chat::filters

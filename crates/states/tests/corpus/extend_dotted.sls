include:
  - ext.base
extend:
  extended:
    test.fail_without_changes: []

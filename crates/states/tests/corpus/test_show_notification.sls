one:
  test.show_notification:
    - text: hello
two:
  test.show_notification: []

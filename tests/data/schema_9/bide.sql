BEGIN TRANSACTION;
CREATE TABLE durations (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  sketch TEXT NOT NULL,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at REAL NOT NULL,
  job TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','status',1.73573280441547417645e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.4153283}');
INSERT INTO "events" VALUES(2,'-','01JGGVSET6K32YC3P09H90BP5J','status',1.73573280442258024219e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.4224346}');
INSERT INTO "events" VALUES(3,'-','01JGGVSET8DKF0DZB1N9WRNGEJ','status',1.7357328044244894981e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.4243827}');
INSERT INTO "events" VALUES(4,'-','01JGGVSETA6CEDXRHBET9W4FNY','status',1.73573280442634224896e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.426169}');
INSERT INTO "events" VALUES(5,'-','01JGGVSETCMGGNZF696DV308CJ','status',1.73573280442827916148e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732804.428017}');
INSERT INTO "events" VALUES(6,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','status',1.73573280471527981757e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.29995155334472656}');
INSERT INTO "events" VALUES(7,'-','01JGGVSET6K32YC3P09H90BP5J','status',1.73573280504347229004e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.6210377216339111}');
INSERT INTO "events" VALUES(8,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','step',1.73573280519909214966e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','step',1.73573280521241927144e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"first","status":"DONE"},"seconds":0.01332712173461914}');
INSERT INTO "events" VALUES(10,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','step',1.73573280523398280148e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','step',1.73573280523398280148e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSESZ6VMHDJAKSYQJPXKZ','status',1.73573280524331355094e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.5280337333679199}');
INSERT INTO "events" VALUES(13,'-','01JGGVSET8DKF0DZB1N9WRNGEJ','status',1.73573280524331355094e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.8189308643341064}');
INSERT INTO "events" VALUES(14,'-','01JGGVSET8DKF0DZB1N9WRNGEJ','status',1.73573280529351353642e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.05019998550415039}');
INSERT INTO "events" VALUES(15,'-','01JGGVSETA6CEDXRHBET9W4FNY','status',1.73573280529963231083e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.8734633922576904}');
INSERT INTO "events" VALUES(16,'-','01JGGVSETA6CEDXRHBET9W4FNY','status',1.73573280531552791598e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"db3477df5c93bed3cbc5f91fb96a9d94"},"seconds":0.015895605087280273}');
INSERT INTO "events" VALUES(17,'-','01JGGVSETCMGGNZF696DV308CJ','status',1.73573280531552791598e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:1853","waited":0.8875110149383545}');
INSERT INTO "events" VALUES(18,'-','01JGGVSETCMGGNZF696DV308CJ','step',1.73573280532895112037e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:1853","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSETCMGGNZF696DV308CJ','step',1.73573280532895112037e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:1853","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(20,'-','01JGGVSETCMGGNZF696DV308CJ','step',1.73573280535056924823e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:1853","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSETCMGGNZF696DV308CJ','step',1.73573280535056924823e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:1853","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(22,'-','01JGGVSETCMGGNZF696DV308CJ','status',1.73573280536531019215e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.04978227615356445}');
INSERT INTO "events" VALUES(23,'-','01JGGVSET6K32YC3P09H90BP5J','status',1.73573280553516435618e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"287142cbfbe1235ce1aa7b9d09592375","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.49169206619262695}');
INSERT INTO "events" VALUES(24,'-','01JGGVSFXS8FMKTHBG5EN668HR','status',1.73573280556221246724e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732805.5619879}');
INSERT INTO "events" VALUES(25,'-','01JGGVSFXS8FMKTHBG5EN668HR','status',1.73573280556221246724e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.00022459030151367188}');
INSERT INTO "events" VALUES(26,'-','01JGGVSFXS8FMKTHBG5EN668HR','status',1735732805.57512,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732915.0487938,"nextAttemptAt":1735732915.0487938,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"8be83c5acd47e1d45d5f6c0abf3b9fa4"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSFYJ841WQ9BP6AV78M59','status',1.73573280558620119092e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSFZ627K7HWFAQ1KXPW59','status',1.73573280560922479625e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSFZ627K7HWFAQ1KXPW59','status',1.73573280562488675119e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.7357328056315436363e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSG0AQS8YQ53SVMQ5KXS6','status',1.73573280565074062348e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732805.6428337}');
INSERT INTO "events" VALUES(32,'-','01JGGVSG0TYKXM9VMMTXZW89GK','status',1.73573280565917921068e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732805.6589763}');
INSERT INTO "events" VALUES(33,'-','01JGGVSG0TYKXM9VMMTXZW89GK','status',1.73573280565917921068e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.0002028942108154297}');
INSERT INTO "events" VALUES(34,'-','01JGGVSG2J7AEXPV9YJRV81F09','status',1.73573280570152711863e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732805.6956134}');
INSERT INTO "events" VALUES(35,'-','01JGGVSG0TYKXM9VMMTXZW89GK','status',1.73573280570152711863e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1853"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSG2J7AEXPV9YJRV81F09','status',1.73573280570152711863e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.005913734436035156}');
INSERT INTO "events" VALUES(37,'-','01JGGVSG2J7VZ4V6D68QE4MDAP','status',1.73573280570771384242e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732805.7074354}');
INSERT INTO "events" VALUES(38,'-','01JGGVSG0TYKXM9VMMTXZW89GK','status',1.73573280570771384242e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1853"}');
INSERT INTO "events" VALUES(39,'-','01JGGVSG2J7AEXPV9YJRV81F09','step',1.73573280570771384242e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSG2J7AEXPV9YJRV81F09','step',1.73573280570771384242e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(41,'-','01JGGVSG0TYKXM9VMMTXZW89GK','status',1.73573280571996426584e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSG2J7VZ4V6D68QE4MDAP','status',1.73573280572901558881e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:1853","waited":0.021580219268798828}');
INSERT INTO "events" VALUES(43,'-','01JGGVSG2J7VZ4V6D68QE4MDAP','step',1.73573280573528265953e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSG2J7VZ4V6D68QE4MDAP','step',1.73573280573528265953e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:1853","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSG3J1A93AB1YJD08MV2E','status',1.73573280574691462523e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732805.746743}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSESZ6VMHDJAKSYQJPXKZ','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSET6K32YC3P09H90BP5J','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSET8DKF0DZB1N9WRNGEJ','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSETA6CEDXRHBET9W4FNY','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSETCMGGNZF696DV308CJ','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSFXS8FMKTHBG5EN668HR','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSFYJ841WQ9BP6AV78M59','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSFZ627K7HWFAQ1KXPW59','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSG0AQS8YQ53SVMQ5KXS6','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSG0TYKXM9VMMTXZW89GK','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSG2J7AEXPV9YJRV81F09','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSG2J7VZ4V6D68QE4MDAP','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSG3J1A93AB1YJD08MV2E','-','{"number": 3}',NULL,NULL);
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  version INTEGER NOT NULL,
  run INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  labels TEXT,
  run_at REAL,
  due REAL,
  deadline REAL,
  attempt INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until REAL,
  started_at REAL,
  next_attempt_at REAL,
  cancel_asked_at REAL,
  finished_at REAL,
  keep REAL,
  expires_at REAL,
  result TEXT,
  result_file TEXT,
  error TEXT,
  progress TEXT,
  steps TEXT,
  files TEXT,
  parent TEXT,
  children TEXT,
  waiting_for TEXT,
  trace_id TEXT,
  -- 1: due and waiting for a worker; claims read only these rows
  ready INTEGER NOT NULL DEFAULT 0
, lease_seconds REAL, loss_record TEXT, overdue_at REAL, webhook TEXT);
INSERT INTO "jobs" VALUES(1,'01JGGVSESZ6VMHDJAKSYQJPXKZ','work','default',1.73573280441532826418e+09,1.73573280524331355094e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280471527981757e+09,NULL,NULL,1.73573280524331355094e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732805.1990921,"finished_at":1735732805.2124193},{"name":"second","status":"DONE","started_at":1735732805.2339828,"finished_at":1735732805.2339828}]',NULL,NULL,NULL,NULL,'8392dc9b926fd2514fafca5a19507b32',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSET6K32YC3P09H90BP5J','half','default',1.73573280442243456844e+09,1.73573280553516435618e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280504347229004e+09,NULL,NULL,1.73573280553516435618e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"287142cbfbe1235ce1aa7b9d09592375","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'287142cbfbe1235ce1aa7b9d09592375',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSET8DKF0DZB1N9WRNGEJ','paint','default',1.73573280442438268667e+09,1.73573280529351353642e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280524331355094e+09,NULL,NULL,1.73573280529351353642e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSET8DKF0DZB1N9WRNGEJ/1.9c554c3f/picture.bin"}]',NULL,NULL,NULL,'9963d2a0a522a420f3d0aec0e92901a6',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSETA6CEDXRHBET9W4FNY','fail','default',1.73573280442616891859e+09,1.73573280531552791598e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280529963231083e+09,NULL,NULL,1.73573280531552791598e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"db3477df5c93bed3cbc5f91fb96a9d94"}',NULL,NULL,NULL,NULL,NULL,NULL,'db3477df5c93bed3cbc5f91fb96a9d94',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSETCMGGNZF696DV308CJ','work','default',1.735732804428016901e+09,1.73573280536531019215e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280531552791598e+09,NULL,NULL,1.73573280536531019215e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732805.3289511,"finished_at":1735732805.3289511},{"name":"second","status":"DONE","started_at":1735732805.3505692,"finished_at":1735732805.3505692}]',NULL,NULL,NULL,NULL,'f2142a2e16cb3580bdb4927c067e4ca2',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSFXS8FMKTHBG5EN668HR','heal','default',1.73573280556198787693e+09,1735732805.57512,'-','RETRYING',3,1,0,NULL,NULL,1.73573291504879379269e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280556221246724e+09,1.73573291504879379269e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"8be83c5acd47e1d45d5f6c0abf3b9fa4"}',NULL,NULL,NULL,NULL,NULL,NULL,'8be83c5acd47e1d45d5f6c0abf3b9fa4',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSFYJ841WQ9BP6AV78M59','work','default',1.73573280558602356911e+09,1.73573280558602356911e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'9e9f800408b5aff6021271a59d25e084',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSFZ627K7HWFAQ1KXPW59','work','default',1.73573280560677790647e+09,1.73573280562488675119e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280562488675119e+09,1.73573280562488675119e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'561222d1118468f6a6df0135efeb3b7e',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSG0AQS8YQ53SVMQ5KXS6','rest','other',1.73573280564283370965e+09,1.73573280564283370965e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280564283370965e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'9539f68dac30d3ec63cec74cca2e09ad',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSG0TYKXM9VMMTXZW89GK','family','default',1.73573280565897631643e+09,1.73573280571996426584e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280565917921068e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSG2J7AEXPV9YJRV81F09","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSG2J7VZ4V6D68QE4MDAP","kind":"work","key":"work#2","status":null}]','["01JGGVSG2J7AEXPV9YJRV81F09","01JGGVSG2J7VZ4V6D68QE4MDAP"]','5b9b7388036d49aa9619dcc83dde7316',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSG2J7AEXPV9YJRV81F09','work','default',1.73573280569561338429e+09,1.73573280570771384242e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:1853',1.73573283570152711867e+09,1.73573280570152711863e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732805.7077138,"finished_at":1735732805.7077138}]',NULL,'01JGGVSG0TYKXM9VMMTXZW89GK',NULL,NULL,'5b9b7388036d49aa9619dcc83dde7316',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSG2J7VZ4V6D68QE4MDAP','work','default',1.73573280570743536952e+09,1.73573280573528265953e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:1853',1.73573283572901558872e+09,1.73573280572901558881e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732805.7352827,"finished_at":1735732805.7352827}]',NULL,'01JGGVSG0TYKXM9VMMTXZW89GK',NULL,NULL,'5b9b7388036d49aa9619dcc83dde7316',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSG3J1A93AB1YJD08MV2E','work','default',1.73573280574674296381e+09,1.73573280574674296381e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280574674296381e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'3a0bf206893654c43179cb6b3dbe45e2',1,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSETCMGGNZF696DV308CJ',1.73573280442827916148e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','fb88c835');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
) WITHOUT ROWID;
CREATE TABLE rollups (
  tenant TEXT NOT NULL,
  span INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITHOUT ROWID;
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','failed:BROKEN',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','run.16',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','wait.40',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','partial',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','run.36',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','wait.38',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','done',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','run.23',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','wait.39',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'rest','other','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','cancelled',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','done',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.23',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.37',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','started',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:first',3);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:second',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.15:first',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','submitted',7);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.11',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.18',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.33',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.40',1);
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSETCMGGNZF696DV308CJ');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSFYJ841WQ9BP6AV78M59');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSFZ627K7HWFAQ1KXPW59');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSESZ6VMHDJAKSYQJPXKZ');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSETCMGGNZF696DV308CJ');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSG2J7AEXPV9YJRV81F09');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSG2J7VZ4V6D68QE4MDAP');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSESZ6VMHDJAKSYQJPXKZ');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSETCMGGNZF696DV308CJ');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSESZ6VMHDJAKSYQJPXKZ','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280521241927144e+09);
INSERT INTO "steps" VALUES('01JGGVSESZ6VMHDJAKSYQJPXKZ','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280523398280148e+09);
INSERT INTO "steps" VALUES('01JGGVSETCMGGNZF696DV308CJ','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280532895112037e+09);
INSERT INTO "steps" VALUES('01JGGVSETCMGGNZF696DV308CJ','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280535056924823e+09);
INSERT INTO "steps" VALUES('01JGGVSG2J7AEXPV9YJRV81F09','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280570771384242e+09);
INSERT INTO "steps" VALUES('01JGGVSG2J7VZ4V6D68QE4MDAP','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280573528265953e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('3aec77186e51a94975b3f76282af805e');
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload_uses (
  upload_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (upload_id, job_id)
) WITHOUT ROWID;
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  replica TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  updated_at REAL NOT NULL,
  expires_at REAL,
  record TEXT NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission TEXT
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSEPNGT56MZPEJC1A5943','-','DONE','host',10,1.73573280433750820163e+09,4.73573280433750820172e+09,'{"id":"01JGGVSEPNGT56MZPEJC1A5943","way":"tus","name":"file","created_at":1735732804.3096628,"updated_at":1735732804.3375082,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732804.337508,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSEPNGT56MZPEJC1A5943/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSES56VQWQ773N0RYDAQT','-','UPLOADING','host',10,1.73573280440587282176e+09,4.735732804405736923e+09,'{"id":"01JGGVSES56VQWQ773N0RYDAQT","way":"tus","name":"file","created_at":1735732804.3897824,"updated_at":1735732804.4058728,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732804.405737,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready = 1;
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
